package dns

import (
	"fmt"
	"net/netip"
	"strings"

	"fairway/packet"
)

// Type is a resource record type (IANA DNS parameters).
type Type uint16

// The types the cluster domain has, and a few that are asked for.
const (
	TypeA     Type = 1
	TypeNS    Type = 2
	TypeCNAME Type = 5
	TypeSOA   Type = 6
	TypePTR   Type = 12
	TypeHINFO Type = 13
	TypeMX    Type = 15
	TypeTXT   Type = 16
	TypeAAAA  Type = 28
	TypeSRV   Type = 33
	TypeHTTPS Type = 65
	TypeIXFR  Type = 251
	TypeAXFR  Type = 252
	TypeANY   Type = 255
)

func (t Type) String() string {
	switch t {
	case TypeA:
		return "A"
	case TypeNS:
		return "NS"
	case TypeCNAME:
		return "CNAME"
	case TypeSOA:
		return "SOA"
	case TypePTR:
		return "PTR"
	case TypeHINFO:
		return "HINFO"
	case TypeMX:
		return "MX"
	case TypeTXT:
		return "TXT"
	case TypeAAAA:
		return "AAAA"
	case TypeSRV:
		return "SRV"
	case TypeHTTPS:
		return "HTTPS"
	case TypeIXFR:
		return "IXFR"
	case TypeAXFR:
		return "AXFR"
	case TypeANY:
		return "ANY"
	}
	return fmt.Sprintf("TYPE%d", uint16(t)) // RFC 3597
}

// ParseType reads a type's mnemonic in any case, or TYPEn (RFC 3597).
func ParseType(s string) (Type, error) {
	up := strings.ToUpper(s)
	for _, t := range []Type{TypeA, TypeNS, TypeCNAME, TypeSOA, TypePTR, TypeHINFO, TypeMX, TypeTXT,
		TypeAAAA, TypeSRV, TypeHTTPS, TypeIXFR, TypeAXFR, TypeANY} {
		if t.String() == up {
			return t, nil
		}
	}
	var n uint16
	if _, err := fmt.Sscanf(up, "TYPE%d", &n); err != nil {
		return 0, fmt.Errorf("%s: unknown record type", s)
	}
	return Type(n), nil
}

// Rcode is a response code (RFC 1035 section 4.1.1, RFC 6895).
type Rcode uint16

// The codes the product answers with.
const (
	NoError  Rcode = 0
	FormErr  Rcode = 1
	ServFail Rcode = 2
	NXDomain Rcode = 3
	NotImpl  Rcode = 4
	Refused  Rcode = 5
)

// rcodeNamed finds a code by its name, in upper or lower case.
func rcodeNamed(name string) (Rcode, bool) {
	for code := NoError; code <= Refused; code++ {
		if strings.EqualFold(code.String(), name) {
			return code, true
		}
	}
	return 0, false
}

func (r Rcode) String() string {
	switch r {
	case NoError:
		return "NOERROR"
	case FormErr:
		return "FORMERR"
	case ServFail:
		return "SERVFAIL"
	case NXDomain:
		return "NXDOMAIN"
	case NotImpl:
		return "NOTIMP"
	case Refused:
		return "REFUSED"
	}
	return fmt.Sprintf("RCODE%d", uint16(r))
}

// Record is one resource record of class IN. Names are absolute, with the final dot.
// Which of the fields after TTL count is decided by Type.
type Record struct {
	Name     string
	Type     Type
	TTL      uint32     // seconds
	Addr     netip.Addr // A, AAAA
	Target   string     // CNAME, NS, PTR, SRV
	Priority uint16     // SRV
	Weight   uint16     // SRV
	Port     uint16     // SRV
	Text     string     // TXT: one character-string, at most 255 octets
	SOA      *SOA
}

// SOA is the data of a start-of-authority record; times are in seconds.
type SOA struct {
	MName, RName                            string
	Serial, Refresh, Retry, Expire, Minimum uint32
}

// Data is the record's data as a zone file writes it.
func (r Record) Data() string {
	switch r.Type {
	case TypeA, TypeAAAA:
		return r.Addr.String()
	case TypeSRV:
		return fmt.Sprintf("%d %d %d %s", r.Priority, r.Weight, r.Port, r.Target)
	case TypeTXT:
		return `"` + r.Text + `"`
	case TypeSOA:
		s := r.SOA
		return fmt.Sprintf("%s %s %d %d %d %d %d", s.MName, s.RName, s.Serial, s.Refresh, s.Retry, s.Expire, s.Minimum)
	}
	return r.Target
}

// String is the record as a line of a zone file (RFC 1035 section 5.1).
func (r Record) String() string {
	return fmt.Sprintf("%s %d IN %s %s", r.Name, r.TTL, r.Type, r.Data())
}

// Question is what a client asks, in class IN. Name may have any case and may lack
// the final dot; it is read as absolute.
type Question struct {
	Name string
	Type Type
}

func (q Question) String() string { return q.Name + " " + q.Type.String() }

// Reply is what must be sent back.
type Reply struct {
	Rcode Rcode
	// NotOurs says that no zone here decides: the question goes to the forwarder.
	NotOurs bool
	// Chase is the name, outside of the zones here, at which a chain of CNAMEs in
	// Answer ends: the forwarder resolves it with the question's type and its answer
	// is added. Empty when there is nothing to add.
	Chase      string
	Answer     []Record
	Authority  []Record
	Additional []Record
	// Steps say why; only Explain fills them.
	Steps []packet.Step
}

// addressType is the record type that carries a.
func addressType(a netip.Addr) Type {
	if a.Is4() {
		return TypeA
	}
	return TypeAAAA
}
