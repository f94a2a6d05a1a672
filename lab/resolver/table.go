package resolver

import (
	"bufio"
	"fmt"
	"net/netip"
	"strings"

	"golang.org/x/net/dns/dnsmessage"
)

// Table is the names a resolver knows, by name in lower case with its final dot.
type Table map[string]Entry

// Entry is what is known of one name. A name with a Canonical one is an alias
// of it and has no addresses of its own.
type Entry struct {
	Canonical string
	Addrs     []netip.Addr
}

// Parse reads hosts(5): an address, a name and aliases of that name on each
// line. Lines that cannot be read are left out and described.
func Parse(text string) (Table, []string) {
	t := Table{}
	var bad []string
	lines := bufio.NewScanner(strings.NewReader(text))
	for n := 1; lines.Scan(); n++ {
		line, _, _ := strings.Cut(lines.Text(), "#")
		fields := strings.Fields(line)
		if len(fields) == 0 {
			continue
		}
		addr, err := netip.ParseAddr(fields[0])
		if err != nil || len(fields) < 2 {
			bad = append(bad, fmt.Sprintf("line %d: want an address and names: %s", n, line))
			continue
		}
		t.add(addr, fields[1:])
	}
	return t, bad
}

func (t Table) add(addr netip.Addr, names []string) {
	first := dotted(names[0])
	e := t[first]
	e.Addrs = append(e.Addrs, addr)
	t[first] = e
	for _, alias := range names[1:] {
		if dotted(alias) != first {
			t[dotted(alias)] = Entry{Canonical: first}
		}
	}
}

func dotted(name string) string { return strings.ToLower(strings.TrimSuffix(name, ".")) + "." }

// ttl is in seconds: short, as the file may change.
const ttl = 5

// Answer resolves one question: the records of its answer and its code. An
// alias is answered by its CNAME and what the canonical name has (RFC 1034
// section 4.3.2); a name above a known one exists and has no records.
func (t Table) Answer(q dnsmessage.Question) ([]dnsmessage.Resource, dnsmessage.RCode) {
	name := strings.ToLower(q.Name.String())
	e, known := t[name]
	if !known && !t.above(name) {
		return nil, dnsmessage.RCodeNameError
	}
	var out []dnsmessage.Resource
	owner := q.Name
	if e.Canonical != "" {
		to, err := dnsmessage.NewName(e.Canonical)
		if err != nil {
			return nil, dnsmessage.RCodeServerFailure
		}
		out = append(out, record(owner, &dnsmessage.CNAMEResource{CNAME: to}))
		if q.Type == dnsmessage.TypeCNAME {
			return out, dnsmessage.RCodeSuccess
		}
		owner, e = to, t[e.Canonical]
	}
	for _, a := range e.Addrs {
		switch {
		case a.Is4() && q.Type == dnsmessage.TypeA:
			out = append(out, record(owner, &dnsmessage.AResource{A: a.As4()}))
		case a.Is6() && q.Type == dnsmessage.TypeAAAA:
			out = append(out, record(owner, &dnsmessage.AAAAResource{AAAA: a.As16()}))
		}
	}
	return out, dnsmessage.RCodeSuccess
}

// above reports whether some known name is below name.
func (t Table) above(name string) bool {
	for known := range t {
		if name == "." || strings.HasSuffix(known, "."+name) {
			return true
		}
	}
	return false
}

func record(owner dnsmessage.Name, body dnsmessage.ResourceBody) dnsmessage.Resource {
	h := dnsmessage.ResourceHeader{Name: owner, Class: dnsmessage.ClassINET, TTL: ttl}
	switch body.(type) {
	case *dnsmessage.CNAMEResource:
		h.Type = dnsmessage.TypeCNAME
	case *dnsmessage.AResource:
		h.Type = dnsmessage.TypeA
	case *dnsmessage.AAAAResource:
		h.Type = dnsmessage.TypeAAAA
	}
	return dnsmessage.Resource{Header: h, Body: body}
}
