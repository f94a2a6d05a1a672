package dns

import (
	"iter"
	"net/netip"
	"slices"
)

// MayTransfer tells whether client may have whole zones (AXFR, RFC 5936).
func (z *Zone) MayTransfer(client netip.Addr) bool {
	return slices.ContainsFunc(z.cfg.TransferTo, func(p netip.Prefix) bool { return p.Contains(client.Unmap()) })
}

// Transfer yields a whole zone served here, from SOA to SOA, in the canonical spelling;
// nil for a name that is no zone's. A copy that has serial already (IXFR, RFC 1995)
// gets one SOA record; nil stands for no copy. Names of Pods that are answered from the
// name alone are in no copy.
func (z *Zone) Transfer(name string, serial *uint32) iter.Seq[Record] {
	name = canonical(name)
	i := slices.IndexFunc(z.soa, func(r Record) bool { return r.Name == name })
	if i < 0 {
		return nil
	}
	soa := z.soa[i]
	return func(yield func(Record) bool) {
		if !yield(soa) || serial != nil && int32(z.serial-*serial) <= 0 {
			return
		}
		for r := range z.records() {
			if zone := z.zoneOf(r.Name); zone != nil && zone.Name == name && !yield(r) {
				return
			}
		}
		yield(soa)
	}
}

// records are all of every zone, but for SOA.
func (z *Zone) records() iter.Seq[Record] {
	return func(yield func(Record) bool) {
		for _, r := range z.apexRecords() {
			if !yield(r) {
				return
			}
		}
		for _, p := range z.parts {
			for _, r := range p.records() {
				if !yield(r) {
					return
				}
			}
		}
		for _, r := range z.podRecords() {
			if !yield(r) {
				return
			}
		}
	}
}
