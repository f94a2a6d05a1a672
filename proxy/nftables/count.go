package nftables

import (
	"fairway/proxy"
)

// Counts tells how many flows began at each ServicePort, from what read finds the
// counters of frontends' elements at. A Service without endpoints refuses what is
// counted there, so it is left out; where source ranges or a policy drop some, those are
// among the flows.
func (p *Program) Counts(read func(visit func(e Elem, packets uint64)) error) ([]proxy.Count, error) {
	owners := make(map[elemID]*proxy.ServicePort, len(p.parts))
	for _, part := range p.parts {
		if part.port == nil || !part.port.HasEndpoints {
			continue
		}
		b := &builder{compiler: part.by, sp: part.port, frontends: true}
		b.build()
		for _, e := range b.finish() {
			owners[e.id()] = part.port
		}
	}
	flows := make(map[*proxy.ServicePort]uint64, len(p.parts))
	err := read(func(e Elem, packets uint64) {
		if sp := owners[e.id()]; sp != nil {
			flows[sp] += packets
		}
	})
	if err != nil {
		return nil, err
	}
	out := make([]proxy.Count, 0, len(flows))
	for sp, n := range flows {
		out = append(out, proxy.Count{Key: sp.Key, Connections: n})
	}
	return out, nil
}
