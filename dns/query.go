package dns

import "bytes"

// Query is one question as it came over the wire. It is meant to be used again for the
// next: it holds its name in place and points into the message read.
type Query struct {
	Type Type
	EDNS bool // the query carried an OPT record (RFC 6891)
	DO   bool

	msg     []byte
	end     int       // of the question in msg
	size    int       // UDP payload size offered
	name    [256]byte // in lower case, with the root's zero
	n       int
	at      [129]uint8 // where each label begins in name, last the root
	labels  int
	scratch [64]byte
	reply   packer // here, so that none is made for each reply
}

// Kind sorts messages by who must deal with them.
type Kind uint8

// The three kinds. Plain is one question of class IN, with at most an OPT record of
// version 0 beside it; Other is left to a complete DNS library; Ignored is no query.
const (
	Plain Kind = iota
	Other
	Ignored
)

const (
	headerLen = 12
	optLen    = 11
	// MaxUDP is the most sent over UDP, in bytes, whatever a client offers: larger
	// datagrams are fragmented into more than a few pieces, and a reply goes to a source
	// address that may be forged.
	MaxUDP = 4096
	minUDP = 512
)

// Read takes the query in msg, which must stay as it is while the Query is used.
func (q *Query) Read(msg []byte) Kind {
	if len(msg) < headerLen || msg[2]&0x80 != 0 {
		return Ignored
	}
	counts := msg[4:headerLen]
	if msg[2]&0x78 != 0 || !bytes.Equal(counts[:7], []byte{0, 1, 0, 0, 0, 0, 0}) || counts[7] > 1 {
		return Other
	}
	q.msg = msg
	if !q.readName() || q.end+4 > len(msg) {
		return Other
	}
	q.Type = Type(be16(msg[q.end:]))
	if be16(msg[q.end+2:]) != 1 || q.Type >= 249 && q.Type <= 254 {
		return Other // another class, a transfer or a type of the protocol itself
	}
	q.end += 4
	q.EDNS, q.DO, q.size = false, false, minUDP
	if counts[7] == 1 && !q.readOPT() {
		return Other
	}
	return Plain
}

// readName copies the question's name; false when it is compressed, cut or too long.
func (q *Query) readName() bool {
	off, n := headerLen, 0
	q.labels = 0
	for {
		if off >= len(q.msg) {
			return false
		}
		l := int(q.msg[off])
		if l > 63 || off+1+l > len(q.msg) || n+1+l > 255 {
			return false
		}
		q.at[q.labels] = uint8(n)
		q.name[n] = byte(l)
		if l == 0 {
			q.n, q.end = n+1, off+1
			return true
		}
		for i := 1; i <= l; i++ {
			c := q.msg[off+i]
			if c-'A' < 26 {
				c += 'a' - 'A'
			}
			q.name[n+i] = c
		}
		q.labels++
		off, n = off+1+l, n+1+l
	}
}

// readOPT reads the record after the question; false when it is anything but a sound
// OPT record of version 0.
func (q *Query) readOPT() bool {
	m := q.msg[q.end:]
	if len(m) < optLen || m[0] != 0 || be16(m[1:]) != 41 || m[6] != 0 {
		return false
	}
	q.EDNS, q.DO = true, m[7]&0x80 != 0
	q.size = min(max(int(be16(m[3:])), minUDP), MaxUDP)
	options := m[optLen:]
	left := int(be16(m[9:]))
	if left > len(options) {
		return false
	}
	for options = options[:left]; len(options) > 0; {
		if len(options) < 4 || len(options) < 4+int(be16(options[2:])) {
			return false
		}
		options = options[4+int(be16(options[2:])):]
	}
	return true
}

// Limit is the most bytes the reply may have.
func (q *Query) Limit(tcp bool) int {
	if tcp {
		return 65535
	}
	return q.size
}

// Refuse appends a reply that refuses the question: it is for a server that has no time.
func (q *Query) Refuse(dst []byte) []byte { return q.bare(dst, 0, Refused) }

// Cut appends a reply of which everything is cut: the client asks again over TCP, which
// a forged address cannot.
func (q *Query) Cut(dst []byte) []byte { return q.bare(dst, 0x02, NoError) }

func (q *Query) bare(dst []byte, flags byte, rcode Rcode) []byte {
	p := &q.reply
	p.start(dst, q, minUDP, 0)
	out := p.finish(rcode)
	h := out[p.base:]
	h[2] = h[2]&^0x04 | flags // without authority: nothing is said of the name
	return out
}

// label is the i-th label of the name, in lower case.
func (q *Query) label(i int) []byte {
	at := q.at[i]
	return q.name[at+1 : int(at)+1+int(q.name[at])]
}

// in tells whether the name is zone or below it.
func (q *Query) in(zone wireName) bool {
	return q.labels >= zone.labels && string(q.name[q.at[q.labels-zone.labels]:q.n]) == zone.wire
}

// wireName is a name as the wire has it, in lower case, with the root's zero.
type wireName struct {
	wire   string
	labels int
}

// newWireName reads a canonical name; false when no message can hold it.
func newWireName(name string) (wireName, bool) {
	var w []byte
	n := 0
	for label, rest := "", trimDot(name); rest != ""; n++ {
		label, rest = cutFirst(rest)
		if !fitsLabel(label) {
			return wireName{}, false
		}
		w = append(append(w, byte(len(label))), label...)
	}
	return wireName{string(append(w, 0)), n}, len(w) < 255
}

func cutFirst(name string) (label, rest string) {
	for i := range len(name) {
		if name[i] == '.' {
			return name[:i], name[i+1:]
		}
	}
	return name, ""
}

// fitsLabel tells whether s can be one label.
func fitsLabel(s string) bool {
	if len(s) == 0 || len(s) > 63 {
		return false
	}
	for i := range len(s) {
		if s[i] == '.' || s[i] == '\\' {
			return false
		}
	}
	return true
}

func be16(b []byte) uint16 { return uint16(b[0])<<8 | uint16(b[1]) }
