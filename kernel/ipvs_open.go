package kernel

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"fairway/packet"
	"fairway/proxy/ipvs"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// OpenIPVS asks the node for everything IPVS mode needs, in the network namespace of a
// descriptor, 0 for the current one. The error is ErrNoIPVS and names what is missing;
// problems tells what only one family lacks, by family.
func OpenIPVS(ctx context.Context, netns int, variant Variant) (k *IPVS, problems map[bool]error, err error) {
	k = &IPVS{netns: netns}
	problems = map[bool]error{}
	var missing []error
	if err := k.probeServices(); err != nil {
		missing = append(missing, err)
	}
	if err := k.withDevice(true, func(*netlink.Handle, netlink.Link) error { return nil }); err != nil {
		missing = append(missing, err)
	}
	if err := k.probeSets(ctx); err != nil {
		missing = append(missing, err)
	}
	if len(missing) > 0 {
		k.Close()
		return nil, nil, reasons(missing)
	}
	for _, v6 := range []bool{false, true} {
		t, err := FindIPTables(ctx, v6, netns, variant)
		if err == nil {
			err = k.probeRules(ctx, t, v6)
		}
		if err != nil {
			problems[v6] = err
			continue
		}
		k.rules[index(v6)] = t
	}
	if len(problems) == 2 {
		k.Close()
		return nil, nil, reasons([]error{problems[false], problems[true]})
	}
	return k, problems, nil
}

// LookIPVS is a hand that only lists and removes: nothing is probed, and what is not
// there is not made.
func LookIPVS(ctx context.Context, netns int) *IPVS {
	k := &IPVS{netns: netns, look: true}
	for _, v6 := range []bool{false, true} {
		hands, err := IPTablesLeftovers(ctx, v6, netns)
		for _, t := range hands {
			save, saveErr := t.run(ctx, "", t.tools.save)
			st := ipvs.NewState(v6)
			if st.ReadRules(save); err == nil && saveErr == nil && len(st.Rules)+len(st.Leftovers) > 0 {
				k.rules[index(v6)] = t
			}
		}
	}
	return k
}

// reasons is one error that is ErrNoIPVS and says each thing once.
func reasons(list []error) error {
	var words []string
	for _, e := range list {
		words = append(words, strings.ReplaceAll(e.Error(), ErrNoIPVS.Error()+": ", ""))
	}
	return fmt.Errorf("%w: %s", ErrNoIPVS, strings.Join(words, "; "))
}

// Close ends the connection to the kernel; nothing changes there.
func (k *IPVS) Close() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.conn != nil {
		_ = k.conn.Close()
		k.conn = nil
	}
}

// Serves tells whether a family can be served.
func (k *IPVS) Serves(v6 bool) bool { return k.rules[index(v6)] != nil }

// probeServices makes a virtual service on an address of documentation (RFC 5737) and
// takes it away.
func (k *IPVS) probeServices() error {
	key := ipvs.ServiceKey{Proto: packet.TCP, Addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{198, 51, 100, 0}), 20000)}
	errs := k.Do([]ipvs.Op{
		{Verb: ipvs.AddService, Key: key, Options: ipvs.Options{Scheduler: "rr"}}, {Verb: ipvs.DeleteService, Key: key},
	})
	if errors.Is(errs[0], unix.ENOENT) && !errors.Is(errs[0], ErrNoIPVS) {
		return fmt.Errorf("the kernel has no scheduler rr (module ip_vs_rr): %w", errs[0])
	}
	return cmp.Or(errs[0], errs[1])
}

// probeSet is the name of the sets that are made and taken away at once.
const probeSet = "FAIRWAY-PROBE"

// probeSets makes a set of each type and takes it away.
func (k *IPVS) probeSets(ctx context.Context) error {
	all, probes := "", map[string]string{}
	for _, s := range []ipvs.Set{ipvs.AnyEndpointNode, ipvs.LoopBack, ipvs.LoadBalancerSourceCIDR, ipvs.NodePortTCP, ipvs.IPVSIPs} {
		header := s.Header(false)
		probes[header] = "create " + probeSet + " " + header + "\ndestroy " + probeSet + "\n"
		all += probes[header]
	}
	err := k.Sets(ctx, all)
	if err == nil || errors.Is(err, ErrNoIPSet) {
		return err
	}
	var missing []error
	for header, probe := range probes {
		if err := k.Sets(ctx, probe); err != nil {
			missing = append(missing, fmt.Errorf("the kernel has no ipset of type %s: %w", header, err))
		}
	}
	return errors.Join(missing...)
}

// probeRules loads a rule that matches a set and one that takes a mark from it into a
// chain nothing leads to.
func (k *IPVS) probeRules(ctx context.Context, t *IPTables, v6 bool) error {
	const set = probeSet
	if err := k.Sets(ctx, "create "+set+" "+ipvs.AnyEndpointNode.Header(v6)+"\n"); err != nil {
		return err
	}
	defer func() { _ = k.Sets(ctx, "destroy "+set+"\n") }()
	err := t.Restore(ctx, `*mangle
:KUBE-IPVS-PROBE - [0:0]
-A KUBE-IPVS-PROBE -m set --match-set `+set+` dst,dst -j SET --map-set `+set+` dst,dst --map-mark
-F KUBE-IPVS-PROBE
-X KUBE-IPVS-PROBE
COMMIT
`)
	if err != nil {
		return fmt.Errorf("the kernel or iptables has no match and target of sets (module xt_set): %w", err)
	}
	return nil
}

// Rules applies an input of iptables-restore --noflush.
func (k *IPVS) Rules(ctx context.Context, v6 bool, input string) error {
	t := k.rules[index(v6)]
	if input == "" || t == nil {
		return nil
	}
	return t.Restore(ctx, input)
}

// Intact tells whether the jumps to our rules, the device with as many addresses, and one
// virtual service are still there. It is cheap, and finds what is flushed whole.
func (k *IPVS) Intact(ctx context.Context, v6 bool, addrs int, service *ipvs.ServiceKey) (bool, error) {
	t := k.rules[index(v6)]
	for _, look := range []struct{ table, chain, has string }{
		{ipvs.Mangle, "PREROUTING", "-j KUBE-IPVS-"}, {ipvs.Nat, "PREROUTING", "-j KUBE-IPVS-"}, {ipvs.Filter, "INPUT", "-j KUBE-IPVS-"},
	} {
		out, err := t.run(ctx, "", t.tools.rule, "-w", lockWait, "-t", look.table, "-S", look.chain)
		if err != nil || !strings.Contains(out, look.has) {
			return false, err
		}
	}
	bound, err := k.bound(v6)
	if err != nil || len(bound) != addrs {
		return false, err
	}
	if service == nil {
		return true, nil
	}
	return k.there(*service)
}

// Sysctls sets what IPVS mode needs: conntrack sees its flows, connections to what is
// gone end at once, packets are forwarded. With strictARP the node does not answer for
// the VIPs it holds, nor speaks from one.
func (k *IPVS) Sysctls(strictARP bool) error {
	list := [][2]string{{"net/ipv4/vs/conntrack", "1"}, {"net/ipv4/vs/expire_nodest_conn", "1"},
		{"net/ipv4/vs/expire_quiescent_template", "1"}, {"net/ipv4/ip_forward", "1"}}
	if reusesSlowly() {
		list = append(list, [2]string{"net/ipv4/vs/conn_reuse_mode", "0"})
	}
	if strictARP {
		list = append(list, [2]string{"net/ipv4/conf/all/arp_ignore", "1"}, [2]string{"net/ipv4/conf/all/arp_announce", "2"})
	}
	var errs []error
	for _, s := range list {
		errs = append(errs, SetSysctl(k.netns, s[0], s[1]))
	}
	return errors.Join(errs...)
}

// reusesSlowly tells whether the kernel delays a client that uses a port again by a
// second (fixed in Linux 5.9).
func reusesSlowly() bool {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return false
	}
	var major, minor int
	_, err := fmt.Sscanf(unix.ByteSliceToString(u.Release[:]), "%d.%d", &major, &minor)
	return err == nil && (major < 5 || major == 5 && minor < 9)
}
