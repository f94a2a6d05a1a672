package events_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"

	"fairway/kernel"
	"fairway/loop"
	"fairway/proxy"
	"fairway/proxy/ebpf"
	"fairway/proxy/iptables"
	"fairway/proxy/ipvs"
	"fairway/proxy/nftables"
	"fairway/proxy/userspace"
)

// room is a mode: its programs, and where there is a kernel in memory for it, its
// backend on one that fails.
type room struct {
	name   string
	mode   proxy.Mode
	faulty bool
	open   func(seed uint64) side
}

// side is one run of a mode.
type side interface {
	// apply tells whether everything was written.
	apply(*proxy.Plan) bool
	audit()
	// faults counts the writes that failed.
	faults() int
	// differs compares what was written with what a plan compiled at once would be.
	differs(want *proxy.Plan) string
}

func rooms() []room {
	return []room{
		{"nftables", proxy.NFTables, true, newNFTables},
		{"iptables", proxy.IPTables, true, newIPTables},
		{"ipvs program", proxy.IPVS, false, func(uint64) side {
			return &kept[*ipvs.Program]{compile: ipvs.Compile, text: func(p *ipvs.Program) string { return p.Text(false) + p.Text(true) }}
		}},
		{"ebpf program", proxy.EBPF, false, func(uint64) side {
			return &kept[*ebpf.Program]{compile: ebpf.Compile, text: func(p *ebpf.Program) string { return p.Text() }}
		}},
		{"userspace program", proxy.Userspace, false, func(uint64) side {
			compile := func(prev *userspace.Program, plan *proxy.Plan) *userspace.Program {
				return userspace.Compile(prev, plan, true, userspace.Carry{})
			}
			return &kept[*userspace.Program]{compile: compile, text: func(p *userspace.Program) string { return p.Text() }}
		}},
	}
}

// kept compiles each plan from what it made of the one before.
type kept[P any] struct {
	compile func(prev P, plan *proxy.Plan) P
	text    func(P) string
	last    P
}

func (k *kept[P]) apply(plan *proxy.Plan) bool {
	k.last = k.compile(k.last, plan)
	return true
}

func (k *kept[P]) audit() {}

func (k *kept[P]) faults() int { return 0 }

func (k *kept[P]) differs(want *proxy.Plan) string {
	var none P
	got, fresh := k.text(k.last), k.text(k.compile(none, want))
	if got == fresh {
		return ""
	}
	return got + "want\n" + fresh
}

type nftSide struct {
	kernel  *faultyNFTables
	backend *loop.NFTables
}

// faultyNFTables counts its faults.
type faultyNFTables struct {
	*kernel.FakeNFTables
	faults int
}

func (f *faultyNFTables) Apply(c *nftables.Change) error {
	err := f.FakeNFTables.Apply(c)
	if err != nil {
		f.faults++
	}
	return err
}

func newNFTables(seed uint64) side {
	k := &faultyNFTables{FakeNFTables: kernel.NewFakeNFTables(seed)}
	k.FailRate, k.Limit = 0.1, 20
	return &nftSide{k, loop.NewNFTables(k)}
}

func (s *nftSide) apply(plan *proxy.Plan) bool {
	problems, err := s.backend.Apply(context.Background(), plan)
	return err == nil && len(problems) == 0
}

func (s *nftSide) faults() int { return s.kernel.faults }

func (s *nftSide) audit() { _, _ = s.backend.Audit(context.Background()) }

func (s *nftSide) differs(want *proxy.Plan) string {
	s.kernel.FailRate = 0
	have, err := s.kernel.List()
	if err != nil {
		return err.Error()
	}
	return nftables.Diff(have, nftables.Compile(nil, want)).Text()
}

type iptablesSide struct {
	v4, v6  *kernel.FakeIPTables
	backend *loop.IPTables
	failed  int
}

func newIPTables(seed uint64) side {
	r := rand.New(rand.NewPCG(seed, 22))
	s := &iptablesSide{}
	fail := func(string) error {
		if r.IntN(10) > 0 {
			return nil
		}
		s.failed++
		return errors.New("injected fault")
	}
	s.v4, s.v6 = &kernel.FakeIPTables{Fail: fail, Size: 2}, &kernel.FakeIPTables{V6: true, Fail: fail, Size: 2}
	s.backend = loop.NewIPTables(s.v4, s.v6, iptables.Options{})
	return s
}

func (s *iptablesSide) apply(plan *proxy.Plan) bool {
	problems, err := s.backend.Apply(context.Background(), plan)
	return err == nil && len(problems) == 0
}

func (s *iptablesSide) faults() int { return s.failed }

func (s *iptablesSide) audit() { _, _ = s.backend.Audit(context.Background()) }

func (s *iptablesSide) differs(want *proxy.Plan) string {
	var lines []string
	for _, f := range []*kernel.FakeIPTables{s.v4, s.v6} {
		have, err := f.List(context.Background())
		if err != nil {
			return err.Error()
		}
		lines = append(lines, iptables.Drift(have, iptables.Compile(nil, want, iptables.Options{}), f.V6)...)
	}
	return strings.Join(lines, "\n")
}
