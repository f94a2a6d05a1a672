package ipvs

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"fairway/model"
	"fairway/proxy"
)

// Change is what brings a family from one State to another, in the order it must be
// applied: sets, rules that use them, services, then the addresses packets come in by;
// after that removals, and last what nothing uses any more. Masquerade is in place
// before the first packet is sent on, and nothing is taken away before what replaces it
// is there.
type Change struct {
	V6 bool
	// SetsBefore and SetsAfter are inputs of `ipset restore -exist`, empty for none.
	SetsBefore string
	// Rules is an input of iptables-restore --noflush.
	Rules       string
	Services    []Op
	BindAddrs   []netip.Addr
	UnbindAddrs []netip.Addr
	Removals    []Op
	SetsAfter   string

	// leftover are destinations that were at weight 0 already.
	leftover []Op
}

// OpVerb is one of ipvsadm's commands.
type OpVerb string

// The commands, as ipvsadm writes them.
const (
	AddService        OpVerb = "-A"
	EditService       OpVerb = "-E"
	DeleteService     OpVerb = "-D"
	AddDestination    OpVerb = "-a"
	EditDestination   OpVerb = "-e"
	DeleteDestination OpVerb = "-d"
)

// Op is one call to IPVS; Options belong to services, To and Weight to destinations.
type Op struct {
	Verb OpVerb
	Key  ServiceKey
	Options
	To     netip.AddrPort
	Weight int
	// Port is whose it is, nil for what no ServicePort wants.
	Port *proxy.ServicePort
}

// Text is the call as a line of `ipvsadm -R`.
func (o Op) Text() string {
	head := string(o.Verb) + " " + o.Key.Text()
	switch o.Verb {
	case AddService, EditService:
		return head + " " + o.Options.Text()
	case AddDestination, EditDestination:
		return fmt.Sprintf("%s -r %s -m -w %d", head, o.To, o.Weight)
	case DeleteDestination:
		return head + " -r " + o.To.String()
	}
	return head
}

// Empty tells whether there is nothing to do.
func (c *Change) Empty() bool {
	return c.SetsBefore == "" && c.SetsAfter == "" && c.Rules == "" && len(c.Services)+len(c.Removals)+len(c.BindAddrs)+len(c.UnbindAddrs) == 0
}

// Draining is the destinations that take nothing new and go with their last connection.
type Draining map[ServiceKey]map[netip.AddrPort]bool

// Has tells whether a destination is among them.
func (d Draining) Has(k ServiceKey, a netip.AddrPort) bool { return d[k][a] }

// Note brings d up to date with operations that were done.
func (d Draining) Note(c *Change, done []Op) {
	for _, o := range slices.Concat(done, c.leftover) {
		switch {
		case o.Verb == DeleteService:
			delete(d, o.Key)
		case o.Verb == EditDestination && o.Weight == 0:
			if d[o.Key] == nil {
				d[o.Key] = map[netip.AddrPort]bool{}
			}
			d[o.Key][o.To] = true
		case o.Verb == AddDestination, o.Verb == EditDestination, o.Verb == DeleteDestination:
			d.Forget(o.Key, o.To)
		}
	}
}

// Forget takes a destination out of d.
func (d Draining) Forget(k ServiceKey, a netip.AddrPort) {
	delete(d[k], a)
	if len(d[k]) == 0 {
		delete(d, k)
	}
}

// add puts a wanted destination in: one that was on its way out gets its weight back.
func (c *Change) add(s Service, a netip.AddrPort, draining Draining) {
	verb := AddDestination
	if draining.Has(s.Key, a) {
		verb = EditDestination
	}
	c.Services = append(c.Services, Op{Verb: verb, Key: s.Key, To: a, Weight: 1, Port: s.Port})
}

// take takes a destination out, gracefully where that means something.
func (c *Change) take(k ServiceKey, a netip.AddrPort, gently bool) {
	o := Op{Verb: DeleteDestination, Key: k, To: a}
	if gently {
		o.Verb = EditDestination
	}
	c.Removals = append(c.Removals, o)
}

// arrange puts the API server's own Service first, and the rest into a fixed order.
func (c *Change) arrange() {
	first := func(o Op) int {
		if o.Port != nil && o.Port.Service == (model.Name{Namespace: "default", Name: "kubernetes"}) {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(c.Services, func(a, b Op) int { return cmp.Compare(first(a), first(b)) })
	slices.SortFunc(c.Removals, func(a, b Op) int {
		return cmp.Or(a.Key.Compare(b.Key), strings.Compare(string(a.Verb), string(b.Verb)), a.To.Compare(b.To))
	})
}

// setLines collects lines for ipset restore.
type setLines struct{ b []byte }

func (l *setLines) line(words ...string) {
	for i, w := range words {
		if i > 0 {
			l.b = append(l.b, ' ')
		}
		l.b = append(l.b, w...)
	}
	l.b = append(l.b, '\n')
}

func (l *setLines) add(name string, e Element, mark uint32) {
	if mark != 0 {
		l.line("add", name, e.Text(), "skbmark", fmt.Sprintf("0x%x", mark))
		return
	}
	l.line("add", name, e.Text())
}
