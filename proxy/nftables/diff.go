package nftables

import (
	"net/netip"
	"slices"

	"fairway/model"
	"fairway/proxy"
)

// Action is what an Op does. The order of the values is the order the kernel needs
// within one transaction: everything is added before it is referred to and removed
// after the last reference is gone; elements go before others take their keys.
type Action uint8

// The actions, in order.
const (
	ResetTable Action = iota // delete a table of another layout
	AddTable
	AddSet
	AddChain
	FlushChain
	AddRule
	DelElem
	AddElem
	EmptyChain
	DelChain
	DelSet
	DelTable
)

// Op is one step of a Change. Group is the index into Change.Groups of the Service it
// belongs to, or NoGroup.
type Op struct {
	Action Action
	V6     bool
	Group  int32
	Set    *Set
	Chain  *Chain
	Rule   Rule
	Elem   *Elem
}

// NoGroup marks an Op that no single Service owns.
const NoGroup int32 = -1

// Change is the way from one Program to another. Ops are sorted by Action. A group is
// one Service, or several between which a frontend moves; some groups may be empty.
type Change struct {
	Ops    []Op
	Groups [][]model.Ref
	// fresh holds, by group, ServicePorts whose elements are all to be added. Of a whole
	// cluster they are made when it is their turn: see All, Chunks and ByGroup.
	fresh [][]*Part
}

// Empty tells whether there is nothing to do.
func (c *Change) Empty() bool { return len(c.Ops) == 0 && len(c.fresh) == 0 }

// Diff finds the Change from have (nil is an empty kernel) to want. Parts that both
// share by pointer cost nothing.
func Diff(have, want *Program) *Change {
	if have == nil {
		have = &Program{}
	}
	if want == nil {
		want = &Program{}
	}
	d := &differ{change: &Change{}, groups: map[model.Ref]int32{}, want: want, seen: have.seen}
	d.reset = d.tables(have, want)
	oldParts, newParts := differing(have, want)
	d.sets(d.alive(oldParts), newParts)
	d.chains(d.alive(oldParts), newParts)
	d.elems(d.alive(oldParts), newParts)
	d.joinGroups()
	return d.change.sorted()
}

type differ struct {
	change *Change
	groups map[model.Ref]int32
	joined [][2]int32 // groups that must go together
	want   *Program
	seen   *Expectation
	reset  [2]bool // by family: have's table is deleted whole
}

// differing lists the parts only one of two Programs has, the shared one first. Usually
// all but a few neighbours are the same.
func differing(have, want *Program) (old, new []*Part) {
	h, w := have.parts, want.parts
	for len(h) > 0 && len(w) > 0 && h[0] == w[0] {
		h, w = h[1:], w[1:]
	}
	for len(h) > 0 && len(w) > 0 && h[len(h)-1] == w[len(w)-1] {
		h, w = h[:len(h)-1], w[:len(w)-1]
	}
	return have.sharedAnd(without(h, w)), want.sharedAnd(without(w, h))
}

func (p *Program) sharedAnd(parts []*Part) []*Part {
	if p.shared == nil {
		return parts
	}
	return append([]*Part{p.shared}, parts...)
}

func without(parts, others []*Part) []*Part {
	other := make(map[*Part]bool, len(others))
	for _, part := range others {
		other[part] = true
	}
	var out []*Part
	for _, part := range parts {
		if !other[part] {
			out = append(out, part)
		}
	}
	return out
}

func (d *differ) op(op Op, owner model.Ref) {
	op.Group = d.group(owner)
	d.change.Ops = append(d.change.Ops, op)
}

func (d *differ) group(owner model.Ref) int32 {
	if owner == (model.Ref{}) {
		return NoGroup
	}
	if n := len(d.change.Groups); n > 0 && d.change.Groups[n-1][0] == owner {
		return int32(n - 1) // as usual
	}
	g, ok := d.groups[owner]
	if !ok {
		g = int32(len(d.change.Groups))
		d.groups[owner] = g
		d.change.Groups = append(d.change.Groups, []model.Ref{owner})
	}
	return g
}

// joinGroups makes one group of those between which an element moves: what the old
// owner removes may be in use until the new one has taken over.
func (d *differ) joinGroups() {
	if len(d.joined) == 0 {
		return
	}
	root := make([]int32, len(d.change.Groups))
	for i := range root {
		root[i] = int32(i)
	}
	find := func(g int32) int32 {
		for root[g] != g {
			g = root[g]
		}
		return g
	}
	for _, j := range d.joined {
		from, to := find(j[0]), find(j[1])
		if from == to {
			continue
		}
		root[from] = to
		d.change.Groups[to] = append(d.change.Groups[to], d.change.Groups[from]...)
		d.change.Groups[from] = nil
	}
	for i := range d.change.Ops {
		if o := &d.change.Ops[i]; o.Group != NoGroup {
			o.Group = find(o.Group)
		}
	}
}

// tables adds and deletes whole tables, and tells which of have's tables are gone.
func (d *differ) tables(have, want *Program) [2]bool {
	var reset [2]bool
	for i, v6 := range []bool{false, true} {
		switch {
		case !want.has(v6):
			if have.has(v6) {
				d.op(Op{Action: DelTable, V6: v6}, model.Ref{})
			}
			reset[i] = true
		case have.has(v6) && have.foreign(v6, want):
			d.op(Op{Action: ResetTable, V6: v6}, model.Ref{})
			d.op(Op{Action: AddTable, V6: v6}, model.Ref{})
			reset[i] = true
		case !have.has(v6):
			d.op(Op{Action: AddTable, V6: v6}, model.Ref{})
		}
	}
	return reset
}

// foreign tells whether a set or base chain of the layout has another shape: the table
// was made by another version, and nothing of it can be kept.
func (p *Program) foreign(v6 bool, want *Program) bool {
	sets := map[nameID]Set{}
	for _, s := range want.shared.Sets {
		sets[s.id()] = s
	}
	for _, s := range p.shared.Sets {
		w, wanted := sets[s.id()]
		if !want.strict {
			w.Counter = s.Counter
		}
		if s.V6 == v6 && wanted && w != s {
			return true
		}
	}
	hooks := map[nameID]Hook{}
	for _, c := range want.shared.Chains {
		hooks[c.id()] = c.Hook
	}
	return slices.ContainsFunc(p.shared.Chains, func(c *Chain) bool {
		h, wanted := hooks[c.id()]
		return c.V6 == v6 && wanted && h != c.Hook
	})
}

// alive leaves out what goes with its table.
func (d *differ) alive(parts []*Part) []*Part {
	if !d.reset[0] && !d.reset[1] {
		return parts
	}
	gone := func(v6 bool) bool { return v6 && d.reset[1] || !v6 && d.reset[0] }
	out := make([]*Part, len(parts))
	for i, p := range parts {
		out[i] = &Part{
			Sets:   filter(p.Sets, func(s Set) bool { return !gone(s.V6) }),
			Chains: filter(p.Chains, func(c *Chain) bool { return !gone(c.V6) }),
			fixed:  filter(p.fixed, func(e Elem) bool { return !gone(e.V6) }),
		}
		if p.port != nil && !gone(p.port.IPv6) {
			out[i].port, out[i].by = p.port, p.by
		}
	}
	return out
}

func filter[T any](in []T, keep func(T) bool) []T {
	var out []T
	for _, v := range in {
		if keep(v) {
			out = append(out, v)
		}
	}
	return out
}

type owned[T any] struct {
	value T
	owner model.Ref
	kept  bool
}

func (d *differ) sets(old, new []*Part) {
	have, order := byID(old, func(p *Part) []Set { return p.Sets }, Set.id)
	for _, p := range new {
		for _, s := range p.Sets {
			if h := have[s.id()]; h != nil && h.value.Kind == s.Kind {
				h.kept = true
				continue
			}
			d.op(Op{Action: AddSet, V6: s.V6, Set: &s}, p.Owner())
		}
	}
	for _, h := range order {
		if !h.kept {
			d.op(Op{Action: DelSet, V6: h.value.V6, Set: &h.value}, h.owner)
		}
	}
}

// byID indexes what old parts hold, and keeps its order.
func byID[T any](old []*Part, list func(*Part) []T, id func(T) nameID) (map[nameID]*owned[T], []*owned[T]) {
	have := map[nameID]*owned[T]{}
	var order []*owned[T]
	for _, p := range old {
		for _, v := range list(p) {
			h := &owned[T]{value: v, owner: p.Owner()}
			have[id(v)] = h
			order = append(order, h)
		}
	}
	return have, order
}

func (d *differ) chains(old, new []*Part) {
	have, order := byID(old, func(p *Part) []*Chain { return p.Chains }, (*Chain).id)
	for _, p := range new {
		for _, c := range p.Chains {
			d.chain(have[c.id()], c, p.Owner())
		}
	}
	for _, h := range order {
		if !h.kept {
			d.op(Op{Action: EmptyChain, V6: h.value.V6, Chain: h.value}, h.owner)
			d.op(Op{Action: DelChain, V6: h.value.V6, Chain: h.value}, h.owner)
		}
	}
}

func (d *differ) chain(have *owned[*Chain], want *Chain, owner model.Ref) {
	switch {
	case have == nil:
		d.op(Op{Action: AddChain, V6: want.V6, Chain: want}, owner)
	default:
		have.kept = true
		if have.value == want || slices.EqualFunc(have.value.Rules, want.Rules, Rule.Equal) {
			return
		}
		if len(have.value.Rules) > 0 {
			d.op(Op{Action: FlushChain, V6: want.V6, Chain: want}, owner)
		}
	}
	for _, r := range want.Rules {
		d.op(Op{Action: AddRule, V6: want.V6, Chain: want, Rule: r}, owner)
	}
}

// atOnce is the number of ServicePorts whose elements are worth holding.
const atOnce = 100

// elems compares elements. One whose value changed is deleted and added by the new
// owner's group, so a frontend that moves between Services moves in one step.
func (d *differ) elems(old, new []*Part) {
	have, order := oldElems(old)
	if len(order) == 0 && (d.seen == nil || d.reset[0] && d.reset[1]) && len(new) > atOnce {
		d.freshElems(new)
		return
	}
	for _, p := range new {
		list := p.Elems()
		for i := range list {
			d.elem(have, &list[i], p.Owner())
		}
	}
	d.stale(have, order)
}

// freshElems leaves the elements of ServicePorts to be made later.
func (d *differ) freshElems(new []*Part) {
	for _, p := range new {
		if p.port != nil {
			g := d.group(p.Owner())
			for len(d.change.fresh) <= int(g) {
				d.change.fresh = append(d.change.fresh, nil)
			}
			d.change.fresh[g] = append(d.change.fresh[g], p)
			continue
		}
		for i := range p.fixed {
			d.op(Op{Action: AddElem, V6: p.fixed[i].V6, Elem: &p.fixed[i]}, model.Ref{})
		}
	}
}

func oldElems(old []*Part) (map[elemID]*owned[*Elem], []*owned[*Elem]) {
	have := map[elemID]*owned[*Elem]{}
	var order []*owned[*Elem]
	for _, p := range old {
		list := p.Elems()
		for i := range list {
			h := &owned[*Elem]{value: &list[i], owner: p.Owner()}
			have[list[i].id()] = h
			order = append(order, h)
		}
	}
	return have, order
}

func (d *differ) elem(have map[elemID]*owned[*Elem], e *Elem, owner model.Ref) {
	if d.seen.has(*e) && !d.reset[family(e.V6)] {
		return
	}
	if len(have) > 0 {
		if h := have[e.id()]; h != nil {
			same := *h.value == *e
			if !h.kept && !same {
				d.op(Op{Action: DelElem, V6: e.V6, Elem: h.value}, owner)
				if from, to := d.group(h.owner), d.group(owner); from != to && from != NoGroup {
					d.joined = append(d.joined, [2]int32{from, to})
				}
			}
			h.kept = true
			if same {
				return
			}
		}
	}
	d.op(Op{Action: AddElem, V6: e.V6, Elem: e}, owner)
}

// stale deletes what nobody wants any more.
func (d *differ) stale(have map[elemID]*owned[*Elem], order []*owned[*Elem]) {
	shared := map[elemID]bool{}
	for id, h := range have {
		if !h.kept && id.kind.shared() {
			shared[id] = true
		}
	}
	d.dropWanted(shared)
	for _, h := range order {
		id := h.value.id()
		if h.kept || have[id] != h || id.kind.shared() && !shared[id] {
			continue
		}
		d.op(Op{Action: DelElem, V6: h.value.V6, Elem: h.value}, h.owner)
	}
}

// dropWanted takes elements that some ServicePort still holds out of shared. All of
// want is looked through, by addresses only, and of those the last bytes first.
func (d *differ) dropWanted(shared map[elemID]bool) {
	if len(shared) == 0 {
		return
	}
	var ends [1 << 16]bool
	for id := range shared {
		n := len(id.key)
		ends[uint16(id.key[n-2])<<8|uint16(id.key[n-1])] = true
	}
	var w writer
	drop := func(kind Kind, a netip.Addr) {
		b := a.As16()
		if !ends[uint16(b[14])<<8|uint16(b[15])] {
			return
		}
		w.buf = w.buf[:0]
		for range kind.Fields() {
			w.addr(a)
		}
		delete(shared, elemID{isV6(a), kind, string(w.buf)})
	}
	for _, part := range d.want.parts {
		sp := part.port
		if sp == nil {
			continue // want is never a listing
		}
		if part.by.cfg.RejectUnknownPorts && sp.ClusterIP.IsValid() {
			drop(ClusterIPs, sp.ClusterIP)
		}
		for _, list := range [][]proxy.Endpoint{sp.Cluster, sp.Local} {
			for _, e := range list {
				drop(Hairpin, e.Addr.Addr())
			}
		}
	}
}
