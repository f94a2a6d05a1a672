package ingress

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"
	"strconv"

	"fairway/model"
	"fairway/packet"
)

// backendKey finds what an earlier Table made of the same Service object and port.
type backendKey struct {
	svc    *model.Service // nil when it does not exist
	target Target
	sticky bool
}

func (t Target) String() string {
	if t.PortName != "" {
		return t.Service.String() + ":" + t.PortName
	}
	return t.Service.String() + ":" + strconv.Itoa(int(t.PortNumber))
}

func (t Target) port() string {
	if t.PortName != "" {
		return t.PortName
	}
	return strconv.Itoa(int(t.PortNumber))
}

// newBackend chooses the endpoints of a Service port: whatever the Service's type,
// the addresses its slices list (no cluster address, no NodePort in between).
func newBackend(svc *model.Service, t Target, cfg Config) *Backend {
	b := &Backend{Name: t.Service.Namespace + "-" + t.Service.Name + "-" + t.port(), Target: t}
	if svc == nil {
		b.Missing = "Service " + t.Service.String() + " does not exist"
		return b
	}
	if svc.Type == model.ExternalName {
		b.external(svc, cfg)
		return b
	}
	port, fixed, ok := servicePort(svc, t)
	if !ok {
		b.Missing = missingPort(svc, t)
		return b
	}
	for _, e := range svc.Endpoints {
		n := fixed
		if n == 0 {
			n = e.PortFor(port, packet.TCP)
		}
		if n == 0 {
			continue
		}
		ep := Endpoint{Addr: netip.AddrPortFrom(e.Addr, n), Pod: e.Pod, Node: e.Node}
		switch {
		case e.Ready && !e.Terminating, e.Ready && svc.PublishNotReady:
			b.Endpoints = append(b.Endpoints, ep)
		case e.Serving && e.Terminating:
			b.Draining = append(b.Draining, ep)
		}
	}
	return b
}

// servicePort finds the named or numbered port of the Service. fixed is set instead
// for a headless Service that lists no port: the number is then the endpoint's own.
func servicePort(svc *model.Service, t Target) (name string, fixed uint16, ok bool) {
	for _, p := range svc.Ports {
		if p.Protocol == packet.TCP && (t.PortName != "" && p.Name == t.PortName || t.PortName == "" && p.Port == t.PortNumber && p.Port != 0) {
			return p.Name, 0, true
		}
	}
	if svc.Headless && len(svc.Ports) == 0 && t.PortNumber != 0 {
		return "", t.PortNumber, true
	}
	return "", 0, false
}

func missingPort(svc *model.Service, t Target) string {
	msg := fmt.Sprintf("Service %s has no TCP port %s", t.Service, t.port())
	for _, p := range svc.Ports {
		if p.Protocol == packet.TCP && p.TargetPort == t.port() {
			return fmt.Sprintf("%s; %s is a targetPort, name the Service's port %d", msg, t.port(), p.Port)
		}
	}
	return msg
}

func (b *Backend) external(svc *model.Service, cfg Config) {
	if cfg.DisableExternalName {
		b.Missing = "Service " + svc.Name.String() + " is of type ExternalName, which is switched off"
		return
	}
	port := b.PortNumber
	for _, p := range svc.Ports {
		if b.PortName != "" && p.Name == b.PortName || b.PortName == "" && p.Port == b.PortNumber {
			port = p.Port
			if n, err := strconv.ParseUint(p.TargetPort, 10, 16); err == nil && n > 0 {
				port = uint16(n)
			}
		}
	}
	if port == 0 {
		b.Missing = missingPort(svc, b.Target)
		return
	}
	b.ExternalName, b.ExternalPort = svc.ExternalName, port
	if svc.ExternalName == "" {
		b.Missing = "Service " + svc.Name.String() + " has no externalName"
	}
}

// makeSticky gives every endpoint its cookie value.
func (b *Backend) makeSticky(key []byte) {
	b.sticky = make(map[string]Endpoint, len(b.Endpoints)+len(b.Draining))
	for _, list := range [][]Endpoint{b.Draining, b.Endpoints} { // ready wins a tie
		for i := range list {
			m := hmac.New(sha256.New, key)
			fmt.Fprintf(m, "%s %s", b.Target, list[i].Addr)
			list[i].Cookie = hex.EncodeToString(m.Sum(nil)[:16])
			b.sticky[list[i].Cookie] = list[i]
		}
	}
}

// Pick chooses an endpoint that is not in tried. n is the caller's counter (round
// robin) or a random number; cookie is the value of the affinity cookie the client
// sent, empty if none. kept says that the cookie decided, so none need be set. False
// means nobody is left.
func (b *Backend) Pick(n uint64, cookie string, tried []netip.AddrPort) (e Endpoint, kept, ok bool) {
	if cookie != "" {
		if e, ok := b.sticky[cookie]; ok && !slices.Contains(tried, e.Addr) {
			return e, true, true
		}
	}
	total := uint64(len(b.Endpoints))
	for i := range total {
		e := b.Endpoints[(n+i)%total]
		if !slices.Contains(tried, e.Addr) {
			return e, false, true
		}
	}
	return Endpoint{}, false, false
}
