package ipvs

import (
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strings"
)

// Diff compares two Programs of a family by what changed, without writing out the rest;
// where the node itself changed, everything is compared. What is draining in the kernel
// is given, and taken back or left.
func Diff(have, want *Program, v6 bool, draining Draining) *Change {
	h, w := have.family(v6), want.family(v6)
	if !reflect.DeepEqual(h.set, w.set) {
		return DiffState(have.State(v6), want, draining)
	}
	c := &Change{V6: v6}
	gone := make(map[*part]bool, len(h.parts))
	for _, p := range h.parts {
		gone[p] = true
	}
	var fresh, kept []*part
	for _, p := range w.parts {
		if gone[p] {
			kept = append(kept, p)
			delete(gone, p)
		} else {
			fresh = append(fresh, p)
		}
	}
	c.compareServices(h.set, gone, fresh, draining)
	var before, after setLines
	for _, m := range h.set.compareMembers(gone, fresh, kept) {
		if m.gone {
			after.line("del", m.set.Name(v6), m.elem.Text())
		} else {
			before.add(m.set.Name(v6), m.elem, m.mark)
		}
	}
	c.BindAddrs, c.UnbindAddrs = compareSorted(h.addrs, w.addrs)
	for _, a := range c.BindAddrs {
		before.add(IPVSIPs.Name(v6), Element{Addr: a}, 0)
	}
	for _, a := range c.UnbindAddrs {
		after.line("del", IPVSIPs.Name(v6), a.String())
	}
	c.SetsBefore, c.SetsAfter = string(before.b), string(after.b)
	c.arrange()
	return c
}

func (c *Change) compareServices(s settings, gone map[*part]bool, fresh []*part, draining Draining) {
	old := map[ServiceKey]Service{}
	for p := range gone {
		for _, svc := range s.services(p) {
			old[svc.Key] = svc
		}
	}
	for _, p := range fresh {
		for _, svc := range s.services(p) {
			was, there := old[svc.Key]
			delete(old, svc.Key)
			switch {
			case !there:
				c.Services = append(c.Services, Op{Verb: AddService, Key: svc.Key, Options: svc.Options, Port: svc.Port})
			case was.Options != svc.Options:
				c.Services = append(c.Services, Op{Verb: EditService, Key: svc.Key, Options: svc.Options, Port: svc.Port})
			}
			more, less := compareSorted(was.To, svc.To)
			for _, a := range more {
				c.add(svc, a, draining)
			}
			for _, a := range less {
				c.take(svc.Key, a, svc.Graceful())
			}
			c.hasten(svc, was.To, draining)
		}
	}
	for key := range old {
		c.Removals = append(c.Removals, Op{Verb: DeleteService, Key: key})
	}
}

// changed is a member that came or is gone.
type changed struct {
	member
	gone bool
}

// compareMembers finds the elements to add and to delete. Endpoints and health check
// ports can be more than one ServicePort's: those that others have stay as they are.
func (s settings) compareMembers(gone map[*part]bool, fresh, kept []*part) []changed {
	type key struct {
		set  Set
		elem Element
	}
	diff := map[key]changed{}
	var order []key
	note := func(m member, isGone bool) {
		k := key{m.set, m.elem}
		was, there := diff[k]
		switch {
		case !there:
			order = append(order, k)
			diff[k] = changed{m, isGone}
		case was.gone && !isGone && was.mark == m.mark:
			delete(diff, k)
		case !isGone:
			diff[k] = changed{m, false}
		}
	}
	for p := range gone {
		for _, m := range s.members(p) {
			note(m, true)
		}
	}
	came := map[key]bool{}
	for _, p := range fresh {
		for _, m := range s.members(p) {
			if k := (key{m.set, m.elem}); !came[k] {
				came[k] = true
				note(m, false)
			}
		}
	}
	shared := func(k key) bool { return k.set == LoopBack || k.set == HealthCheckNodePort }
	if slices.ContainsFunc(order, func(k key) bool { _, left := diff[k]; return left && shared(k) }) {
		for _, p := range kept {
			for e := range s.loops(p.port) {
				delete(diff, key{LoopBack, e})
			}
			delete(diff, key{HealthCheckNodePort, Element{Port: p.health}})
		}
	}
	var out []changed
	for _, k := range order {
		if m, left := diff[k]; left {
			out = append(out, m)
			delete(diff, k)
		}
	}
	slices.SortStableFunc(out, func(a, b changed) int {
		if a.set != b.set {
			return int(a.set) - int(b.set)
		}
		return strings.Compare(a.elem.Text(), b.elem.Text())
	})
	return out
}

// compareSorted returns what is only in want, and what only in have.
func compareSorted[T interface{ Compare(T) int }](have, want []T) (more, less []T) {
	for len(have) > 0 || len(want) > 0 {
		switch {
		case len(have) == 0 || len(want) > 0 && want[0].Compare(have[0]) < 0:
			more, want = append(more, want[0]), want[1:]
		case len(want) == 0 || want[0].Compare(have[0]) > 0:
			less, have = append(less, have[0]), have[1:]
		default:
			have, want = have[1:], want[1:]
		}
	}
	return more, less
}

// DiffState compares what is listed with a whole Program. Virtual services of others
// are left alone: ours are those with an address on Device, in one of the sets, or with
// a mark of ours.
func DiffState(have *State, want *Program, draining Draining) *Change {
	w := want.State(have.V6)
	f := want.family(have.V6)
	c := &Change{V6: have.V6}
	c.compareStates(have, w, f, draining)
	c.compareSets(have, w)
	c.Rules = restore(have.Rules, w.Rules)
	c.BindAddrs, c.UnbindAddrs = compareSorted(sortedAddrs(have.Addrs), f.addrs)
	c.arrange()
	return c
}

func sortedAddrs(m map[netip.Addr]bool) []netip.Addr {
	return slices.SortedFunc(maps.Keys(m), netip.Addr.Compare)
}

func (c *Change) compareStates(have, w *State, f *family, draining Draining) {
	for _, p := range f.parts {
		for _, svc := range f.set.services(p) {
			was, there := have.Services[svc.Key]
			switch {
			case !there:
				c.Services = append(c.Services, Op{Verb: AddService, Key: svc.Key, Options: svc.Options, Port: svc.Port})
			case was.Options != svc.Options:
				c.Services = append(c.Services, Op{Verb: EditService, Key: svc.Key, Options: svc.Options, Port: svc.Port})
			}
			c.compareDestinations(svc, was, draining)
		}
	}
	prefix, mask := f.set.prefix()
	for key := range have.Services {
		if _, wanted := w.Services[key]; !wanted && have.owns(key, prefix, mask) {
			c.Removals = append(c.Removals, Op{Verb: DeleteService, Key: key})
		}
	}
}

func (c *Change) compareDestinations(svc Service, was ListedService, draining Draining) {
	wanted := make(map[netip.AddrPort]bool, len(svc.To))
	for _, a := range svc.To {
		wanted[a] = true
		d, there := was.To[a]
		switch {
		case !there:
			c.add(svc, a, draining)
		case d.Weight != 1:
			c.Services = append(c.Services, Op{Verb: EditDestination, Key: svc.Key, To: a, Weight: 1, Port: svc.Port})
		}
	}
	for a, d := range was.To {
		switch {
		case wanted[a]:
		case d.Weight == 0 && svc.Graceful():
			c.leftover = append(c.leftover, Op{Verb: EditDestination, Key: svc.Key, To: a})
		default:
			c.take(svc.Key, a, svc.Graceful())
		}
	}
	c.hasten(svc, slices.Collect(maps.Keys(was.To)), draining)
}

// hasten deletes what still drains where the service, as it is now, cannot have it; the
// destinations it had are dealt with elsewhere.
func (c *Change) hasten(svc Service, had []netip.AddrPort, draining Draining) {
	if svc.Graceful() {
		return
	}
	for a := range draining[svc.Key] {
		if !slices.Contains(svc.To, a) && !slices.Contains(had, a) {
			c.take(svc.Key, a, false)
		}
	}
}

// owns tells whether a listed virtual service is ours.
func (st *State) owns(k ServiceKey, prefix, mask uint32) bool {
	if k.Mark != 0 {
		return k.Mark&mask == prefix || st.givesMark(k.Mark)
	}
	if st.Addrs[k.Addr.Addr()] {
		return true
	}
	e := Element{Addr: k.Addr.Addr(), Proto: k.Proto, Port: k.Addr.Port()}
	for _, s := range []Set{ClusterIP, ExternalIP, ExternalIPLocal, LoadBalancer, NodePortSCTP} {
		if _, in := st.Sets[s.Name(st.V6)].Elements[e]; in {
			return true
		}
	}
	all, _ := nodePortSets(k.Proto)
	_, in := st.Sets[all.Name(st.V6)].Elements[Element{Port: k.Addr.Port()}]
	return in
}

func (st *State) givesMark(mark uint32) bool {
	for _, s := range []Set{AnyEndpointPod, AnyEndpointNode} {
		for _, m := range st.Sets[s.Name(st.V6)].Elements {
			if m == mark {
				return true
			}
		}
	}
	return false
}

// temporary is the set that takes the place of one made with other options.
const temporary = "FAIRWAY-NEW"

func (c *Change) compareSets(have, w *State) {
	var before, after setLines
	for s := range setCount {
		name := s.Name(c.V6)
		was, there := have.Sets[name]
		want := w.Sets[name]
		if there && was.Header != want.Header {
			before.line("create", temporary, want.Header)
			for _, e := range sortedElements(want.Elements) {
				before.add(temporary, e, want.Elements[e])
			}
			before.line("swap", temporary, name)
			before.line("destroy", temporary)
			continue
		}
		if !there {
			before.line("create", name, want.Header)
		}
		for _, e := range sortedElements(want.Elements) {
			if mark, in := was.Elements[e]; !in || mark != want.Elements[e] {
				before.add(name, e, want.Elements[e])
			}
		}
		for _, e := range sortedElements(was.Elements) {
			if _, in := want.Elements[e]; !in {
				after.line("del", name, e.Text())
			}
		}
	}
	c.SetsBefore, c.SetsAfter = string(before.b), string(after.b)
}

func sortedElements(m map[Element]uint32) []Element {
	return slices.SortedFunc(maps.Keys(m), Element.compare)
}

// restore is the input of iptables-restore that makes have's chains want's.
func restore(have, want map[Place][]string) string {
	var b strings.Builder
	for _, table := range tableNames() {
		var chains, rules []string
		for _, at := range slices.SortedFunc(maps.Keys(want), Place.compare) {
			if at.Table != table {
				continue
			}
			was, there := have[at]
			switch {
			case !at.ours():
				rules = append(rules, hooksRestored(at.Chain, was, want[at])...)
			case !there || !slices.Equal(was, want[at]):
				chains = append(chains, ":"+at.Chain+" - [0:0]")
				for _, r := range want[at] {
					rules = append(rules, "-A "+at.Chain+" "+r)
				}
			}
		}
		stale, deleted := staleRules(have, want, table)
		chains, rules = append(chains, stale...), append(rules, deleted...)
		if len(chains)+len(rules) > 0 {
			b.WriteString("*" + table + "\n" + strings.Join(append(chains, rules...), "\n") + "\nCOMMIT\n")
		}
	}
	return b.String()
}

// hooksRestored are the lines that put missing jumps at the head of a chain, and take
// others away.
func hooksRestored(chain string, have, want []string) []string {
	var out []string
	for _, r := range have {
		if !slices.Contains(want, r) {
			out = append(out, "-D "+chain+" "+r)
		}
	}
	for _, r := range slices.Backward(want) {
		if !slices.Contains(have, r) {
			out = append(out, "-I "+chain+" "+r)
		}
	}
	return out
}

// staleRules are the chains of ours and jumps to them that nobody wants.
func staleRules(have, want map[Place][]string, table string) (chains, rules []string) {
	var deletions []string
	for _, at := range slices.SortedFunc(maps.Keys(have), Place.compare) {
		if _, wanted := want[at]; wanted || at.Table != table {
			continue
		}
		if !at.ours() {
			rules = append(rules, hooksRestored(at.Chain, have[at], nil)...)
			continue
		}
		chains = append(chains, ":"+at.Chain+" - [0:0]")
		deletions = append(deletions, "-X "+at.Chain)
	}
	return chains, append(rules, deletions...)
}
