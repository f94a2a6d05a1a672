package loop

import (
	"context"
	"fmt"
)

// CleanIPTables removes every chain and jump of a service proxy, of this program or of
// kube-proxy, from the tables a hand holds.
func CleanIPTables(ctx context.Context, hand iptablesHand, v6 bool) error {
	f := &iptablesFamily{v6: v6, hand: hand}
	if err := f.cleanup(ctx); err != nil {
		return fmt.Errorf("iptables: %w", err)
	}
	return nil
}
