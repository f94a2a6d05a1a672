package kernel

import (
	"context"
	"errors"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"fairway/proxy/ipvs"
)

// FakeIPVS is a kernel in memory, for tests of the backend.
type FakeIPVS struct {
	States [2]*ipvs.State
	// Fail is asked before every write, with what it is; an error is the write's.
	Fail func(what string) error
	// Refuse is asked for every operation on virtual services.
	Refuse func(ipvs.Op) error
	// Lists counts listings, Ops operations on virtual services.
	Lists, Ops int
}

// NewFakeIPVS is an empty one.
func NewFakeIPVS() *FakeIPVS {
	return &FakeIPVS{States: [2]*ipvs.State{ipvs.NewState(false), ipvs.NewState(true)}}
}

func (f *FakeIPVS) fail(what string) error {
	if f.Fail == nil {
		return nil
	}
	return f.Fail(what)
}

// List copies a family's state.
func (f *FakeIPVS) List(_ context.Context, v6 bool) (*ipvs.State, error) {
	f.Lists++
	if err := f.fail("list"); err != nil {
		return nil, err
	}
	st := f.States[index(v6)]
	out := &ipvs.State{V6: v6, Services: map[ipvs.ServiceKey]ipvs.ListedService{}, Sets: map[string]ipvs.ListedSet{},
		Addrs: maps.Clone(st.Addrs), Rules: map[ipvs.Place][]string{}, Leftovers: map[ipvs.Place][]string{}}
	for k, s := range st.Services {
		out.Services[k] = ipvs.ListedService{Options: s.Options, To: maps.Clone(s.To)}
	}
	for k, s := range st.Sets {
		out.Sets[k] = ipvs.ListedSet{Header: s.Header, Elements: maps.Clone(s.Elements)}
	}
	for at, rules := range st.Rules {
		out.Rules[at] = slices.Clone(rules)
	}
	return out, nil
}

// Sets applies an input of ipset restore to the family its sets belong to.
func (f *FakeIPVS) Sets(_ context.Context, input string) error {
	if input == "" {
		return nil
	}
	if err := f.fail("sets"); err != nil {
		return err
	}
	for i, st := range f.States {
		if own := familyLines(input, i == 1); own != "" {
			if err := st.Restore(own); err != nil {
				return err
			}
		}
	}
	return nil
}

// familyLines keeps the lines about sets of one family.
func familyLines(input string, v6 bool) string {
	names := map[string]bool{"FAIRWAY-NEW": !v6}
	for s := range ipvs.AnyEndpointNode + 1 {
		names[s.Name(v6)] = true
	}
	out := ""
	for _, line := range strings.Split(input, "\n") {
		if f := strings.Fields(line); len(f) > 1 && names[f[1]] {
			out += line + "\n"
		}
	}
	return out
}

// Rules applies an input of iptables-restore.
func (f *FakeIPVS) Rules(_ context.Context, v6 bool, input string) error {
	if input == "" {
		return nil
	}
	if err := f.fail("rules"); err != nil {
		return err
	}
	return f.States[index(v6)].RestoreRules(input)
}

// Do carries operations out.
func (f *FakeIPVS) Do(ops []ipvs.Op) []error {
	errs := make([]error, len(ops))
	for i, o := range ops {
		f.Ops++
		if f.Refuse != nil {
			errs[i] = f.Refuse(o)
		}
		if errs[i] == nil {
			errs[i] = f.States[index(o.Key.V6)].Do(o)
		}
	}
	return errs
}

// Bind puts addresses on the device.
func (f *FakeIPVS) Bind(addrs []netip.Addr) error {
	for _, a := range addrs {
		if err := f.fail("bind"); err != nil {
			return err
		}
		f.States[index(a.Is6())].Addrs[a] = true
	}
	return nil
}

// Unbind takes them off.
func (f *FakeIPVS) Unbind(addrs []netip.Addr) error {
	for _, a := range addrs {
		if err := f.fail("unbind"); err != nil {
			return err
		}
		delete(f.States[index(a.Is6())].Addrs, a)
	}
	return nil
}

// RemoveDevice removes the addresses that are left.
func (f *FakeIPVS) RemoveDevice() error {
	for _, st := range f.States {
		clear(st.Addrs)
	}
	return nil
}

// Destinations reads those of one virtual service.
func (f *FakeIPVS) Destinations(key ipvs.ServiceKey) (map[netip.AddrPort]ipvs.Destination, error) {
	return maps.Clone(f.States[index(key.V6)].Services[key].To), nil
}

// Forget has no flows to forget.
func (f *FakeIPVS) Forget(context.Context, map[netip.AddrPort]bool) (int, error) {
	return 0, f.fail("forget")
}

// Counts counts one connection for every virtual service.
func (f *FakeIPVS) Counts() (map[ipvs.ServiceKey]IPVSCount, error) {
	out := map[ipvs.ServiceKey]IPVSCount{}
	for _, st := range f.States {
		for key := range st.Services {
			out[key] = IPVSCount{Connections: 1, BytesIn: 10, BytesOut: 20}
		}
	}
	return out, nil
}

// Intact compares numbers only.
func (f *FakeIPVS) Intact(_ context.Context, v6 bool, addrs int, service *ipvs.ServiceKey) (bool, error) {
	st := f.States[index(v6)]
	if len(st.Addrs) != addrs || len(st.Rules) == 0 {
		return false, nil
	}
	if service == nil {
		return true, nil
	}
	_, there := st.Services[*service]
	return there, nil
}

// ErrFake is what tests let writes fail with.
var ErrFake = errors.New("the kernel says no")
