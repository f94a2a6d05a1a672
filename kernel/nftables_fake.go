package kernel

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"

	"fairway/model"
	"fairway/proxy/nftables"
)

// FakeNFTables is the two tables in memory. Like the kernel it makes a transaction
// whole or not at all, and refuses what refers to nothing, takes what is not there, or
// removes what is in use. Faults can be injected.
type FakeNFTables struct {
	// FailRate is the share of Applies that fail, from 0 to 1: of those a third does
	// nothing, a third makes only some of the transactions of a large Change, and a
	// third makes all of it and loses the acknowledgement.
	FailRate float64
	// Refuse, when set, is asked for each Op; its error refuses the transaction.
	Refuse func(nftables.Op) error
	// Limit is the number of Ops per transaction, as NFTables has it; 0 is 100.
	Limit int
	// Touched makes Foreign tell of somebody else's writing.
	Touched bool
	// Applies and Lists count calls.
	Applies, Lists int

	rand  *rand.Rand
	state fakeState
}

// NewFakeNFTables makes an empty kernel whose faults follow from seed.
func NewFakeNFTables(seed uint64) *FakeNFTables {
	return &FakeNFTables{rand: rand.New(rand.NewPCG(seed, 1)), state: newFakeState()}
}

// ErrInjected is the fault of a FakeNFTables.
var ErrInjected = errors.New("injected fault")

// Apply makes the Change, or fails as told.
func (k *FakeNFTables) Apply(c *nftables.Change) error {
	k.Applies++
	limit := k.Limit
	if limit == 0 {
		limit = 100
	}
	var parts []*nftables.Change
	for chunk := range c.Chunks(limit, model.Name{Namespace: "default", Name: "kubernetes"}) {
		parts = append(parts, chunk.Steps()...)
	}
	fault, upTo := k.rand.Float64() < k.FailRate, len(parts)
	if fault {
		switch k.rand.IntN(3) {
		case 0:
			upTo = 0
		case 1:
			upTo = k.rand.IntN(len(parts) + 1)
		}
	}
	for _, part := range parts[:upTo] {
		next := k.state.clone()
		if err := next.transaction(part.Ops, k.Refuse); err != nil {
			return err
		}
		k.state = next
	}
	if fault {
		return ErrInjected
	}
	return nil
}

// List gives what is there.
func (k *FakeNFTables) List() (*nftables.Program, error) { return k.ListFor(nil) }

// ListFor gives what is there and not as want has it.
func (k *FakeNFTables) ListFor(want *nftables.Program) (*nftables.Program, error) {
	k.Lists++
	if k.rand.Float64() < k.FailRate {
		return nil, ErrInjected
	}
	return k.state.program(nftables.Expect(want)), nil
}

// Cleanup empties both tables.
func (k *FakeNFTables) Cleanup() error {
	k.state = newFakeState()
	return nil
}

// Delete takes an element away behind everybody's back.
func (k *FakeNFTables) Delete(e nftables.Elem) { delete(k.state.elems, fakeKey(&e)) }

type fakeName struct {
	v6   bool
	name string
}

type fakeElem struct {
	v6   bool
	kind nftables.Kind
	key  string
}

func fakeKey(e *nftables.Elem) fakeElem { return fakeElem{e.V6, e.Kind, e.Key} }

type fakeState struct {
	tables map[bool]bool
	sets   map[fakeName]nftables.Set
	chains map[fakeName]*nftables.Chain
	elems  map[fakeElem]nftables.Elem
}

func newFakeState() fakeState {
	return fakeState{map[bool]bool{}, map[fakeName]nftables.Set{}, map[fakeName]*nftables.Chain{}, map[fakeElem]nftables.Elem{}}
}

func (s fakeState) clone() fakeState {
	return fakeState{maps.Clone(s.tables), maps.Clone(s.sets), maps.Clone(s.chains), maps.Clone(s.elems)}
}

func (s fakeState) program(expected *nftables.Expectation) *nftables.Program {
	// In a fixed order, so that the same seed makes the same faults.
	sets := slices.SortedFunc(maps.Values(s.sets), func(a, b nftables.Set) int { return strings.Compare(a.Name, b.Name) })
	chains := slices.SortedFunc(maps.Values(s.chains), func(a, b *nftables.Chain) int { return strings.Compare(a.Name, b.Name) })
	elems := slices.SortedFunc(maps.Values(s.elems), func(a, b nftables.Elem) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), strings.Compare(a.Key, b.Key))
	})
	elems = slices.DeleteFunc(elems, expected.Meet)
	return nftables.Listing(s.tables[false], s.tables[true], sets, chains, elems, expected)
}

func (s fakeState) transaction(ops []nftables.Op, refuse func(nftables.Op) error) error {
	for i, o := range ops {
		err := s.op(o)
		if err == nil && refuse != nil {
			err = refuse(o)
		}
		if err != nil {
			return &RefusedError{Op: i, Step: o.Text(), Err: err}
		}
	}
	return nil
}

func (s fakeState) op(o nftables.Op) error {
	if o.Action != nftables.AddTable && !s.tables[o.V6] {
		return errors.New("no such table")
	}
	switch o.Action {
	case nftables.AddTable:
		s.tables[o.V6] = true
	case nftables.ResetTable, nftables.DelTable:
		s.drop(o.V6)
	case nftables.AddSet, nftables.DelSet:
		return s.set(o)
	case nftables.AddElem, nftables.DelElem:
		return s.elem(o)
	default:
		return s.chain(o)
	}
	return nil
}

func (s fakeState) drop(v6 bool) {
	delete(s.tables, v6)
	maps.DeleteFunc(s.sets, func(n fakeName, _ nftables.Set) bool { return n.v6 == v6 })
	maps.DeleteFunc(s.chains, func(n fakeName, _ *nftables.Chain) bool { return n.v6 == v6 })
	maps.DeleteFunc(s.elems, func(e fakeElem, _ nftables.Elem) bool { return e.v6 == v6 })
}

func (s fakeState) set(o nftables.Op) error {
	n := fakeName{o.V6, o.Set.Name}
	have, there := s.sets[n]
	if o.Action == nftables.AddSet {
		if there && (have.Kind != o.Set.Kind || have.Counter != o.Set.Counter) {
			return errors.New("file exists")
		}
		s.sets[n] = *o.Set
		return nil
	}
	if !there {
		return errors.New("no such set")
	}
	for _, c := range s.chains {
		for _, r := range c.Rules {
			if sets, _ := r.Refers(); c.V6 == o.V6 && slices.Contains(sets, o.Set.Name) {
				return fmt.Errorf("set is in use by chain %s", c.Name)
			}
		}
	}
	delete(s.sets, n)
	return nil
}

func (s fakeState) chain(o nftables.Op) error {
	n := fakeName{o.V6, o.Chain.Name}
	have := s.chains[n]
	if o.Action == nftables.AddChain {
		if have == nil {
			s.chains[n] = &nftables.Chain{V6: o.V6, Name: o.Chain.Name, Hook: o.Chain.Hook}
		}
		return nil
	}
	if have == nil {
		return errors.New("no such chain")
	}
	next := *have
	switch o.Action {
	case nftables.FlushChain, nftables.EmptyChain:
		next.Rules = nil
	case nftables.AddRule:
		sets, to := o.Rule.Refers()
		for _, name := range sets {
			if _, ok := s.sets[fakeName{o.V6, name}]; !ok {
				return fmt.Errorf("no such set %s", name)
			}
		}
		if to != "" && s.chains[fakeName{o.V6, to}] == nil {
			return fmt.Errorf("no such chain %s", to)
		}
		next.Rules = append(slices.Clone(have.Rules), o.Rule)
	case nftables.DelChain:
		if user := s.user(o.V6, o.Chain.Name); user != "" {
			return fmt.Errorf("chain is in use by %s", user)
		}
		delete(s.chains, n)
		return nil
	}
	s.chains[n] = &next
	return nil
}

// user finds what refers to a chain.
func (s fakeState) user(v6 bool, name string) string {
	for _, c := range s.chains {
		for _, r := range c.Rules {
			if _, to := r.Refers(); c.V6 == v6 && to == name {
				return "chain " + c.Name
			}
		}
	}
	for _, e := range s.elems {
		if e.V6 == v6 && e.Kind.Data() == nftables.Verdict && e.Data == name {
			return "map " + e.Kind.String()
		}
	}
	return ""
}

func (s fakeState) elem(o nftables.Op) error {
	k := fakeKey(o.Elem)
	have, there := s.elems[k]
	if _, ok := s.sets[fakeName{o.V6, o.Elem.Kind.String()}]; !ok {
		return errors.New("no such set")
	}
	if o.Action == nftables.DelElem {
		if !there {
			return errors.New("no such element")
		}
		delete(s.elems, k)
		return nil
	}
	switch {
	case there && have.Data != o.Elem.Data:
		return errors.New("element exists with another value")
	case there:
		return nil
	case o.Elem.Kind.Data() == nftables.Verdict && s.chains[fakeName{o.V6, o.Elem.Data}] == nil:
		return fmt.Errorf("no such chain %s", o.Elem.Data)
	case o.Elem.Kind.Interval() && s.overlaps(*o.Elem):
		return errors.New("interval overlaps with an existing one")
	}
	s.elems[k] = *o.Elem
	return nil
}

// overlaps applies the kernel's rule for sets of ranges: all fields but the last are
// single values here.
func (s fakeState) overlaps(e nftables.Elem) bool {
	n := len(e.Key) / 2
	src := n - nftables.Saddr.Size(e.V6)
	for _, o := range s.elems {
		if o.Kind != e.Kind || o.V6 != e.V6 || !strings.HasPrefix(o.Key, e.Key[:src]) {
			continue
		}
		if e.Key[src:n] <= o.Key[n+src:] && o.Key[src:n] <= e.Key[n+src:] {
			return true
		}
	}
	return false
}
