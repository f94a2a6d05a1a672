package kernel

import (
	"context"

	"fairway/proxy/iptables"
)

// SaveCounters lists the nat table with the packets each rule has met.
func (t *IPTables) SaveCounters(ctx context.Context) (string, error) {
	return t.run(ctx, "", t.tools.save, "-c", "-t", iptables.Nat)
}
