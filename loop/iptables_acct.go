package loop

import (
	"context"

	"fairway/proxy/iptables"
)

// accounting is a hand with the kernel's objects that rules count with.
type accounting interface {
	CreateAccounts(try func(input string) error) error
	Accounts() (map[string]uint64, error)
	DeleteAccounts() error
}

// Accounts reads what kube-proxy tells of packets as
// iptables_ct_state_invalid_dropped_packets_total and
// iptables_localhost_nodeports_accepted_packets_total; counted is false where the kernel
// cannot.
func (b *IPTables) Accounts() (invalid, localhost uint64, counted bool, err error) {
	b.mu.Lock()
	counts := b.opts.Counters && len(b.families) > 0
	b.mu.Unlock()
	if !counts {
		return 0, 0, false, nil
	}
	hand, ok := b.families[0].hand.(accounting)
	if !ok {
		return 0, 0, false, nil
	}
	packets, err := hand.Accounts()
	if err != nil {
		return 0, 0, false, err
	}
	return packets[iptables.CounterInvalid], packets[iptables.CounterLocalhost], true, nil
}

// account makes the counters before the first rules; a kernel without them serves all the
// same.
func (b *IPTables) account(ctx context.Context) {
	if b.accounted || len(b.families) == 0 {
		return
	}
	b.accounted = true
	f := b.families[0]
	if hand, ok := f.hand.(accounting); ok {
		b.opts.Counters = hand.CreateAccounts(func(input string) error { return f.hand.Restore(ctx, input) }) == nil
	}
}
