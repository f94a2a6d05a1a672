package http

import (
	"crypto/rand"
	"encoding/hex"
	std "net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// readPeer believes X-Forwarded-* of trusted peers only, and the chain of addresses
// from its right end up to the first hop that is not trusted.
func (s *Server) readPeer(r *std.Request) peer {
	ap, _ := netip.ParseAddrPort(r.RemoteAddr)
	p := peer{addr: ap.Addr().Unmap(), scheme: "http", port: strconv.Itoa(int(s.cfg.HTTPPort)), host: r.Host}
	if r.TLS != nil {
		p.scheme, p.port = "https", strconv.Itoa(int(s.cfg.HTTPSPort))
	}
	p.client, p.chain, p.trusted = p.addr, p.addr.String(), s.trusts(p.addr)
	if !p.trusted {
		return p
	}
	p.walk(s, r.Header.Values("X-Forwarded-For"))
	if v := strings.ToLower(r.Header.Get("X-Forwarded-Proto")); v == "http" || v == "https" {
		p.scheme = v
	}
	if v := r.Header.Get("X-Forwarded-Port"); v != "" {
		if _, err := strconv.ParseUint(v, 10, 16); err == nil {
			p.port = v
		}
	}
	if v := r.Header.Get("X-Forwarded-Host"); v != "" {
		p.host = v
	}
	return p
}

func (s *Server) trusts(a netip.Addr) bool {
	return slices.ContainsFunc(s.cfg.TrustedProxies, func(p netip.Prefix) bool { return p.Contains(a) })
}

// walk goes through the chain from right to left; what stands left of the first
// address that is not trusted was written by a stranger and is dropped.
func (p *peer) walk(s *Server, fields []string) {
	hops := strings.Split(strings.Join(fields, ","), ",")
	for i := len(hops) - 1; i >= 0; i-- {
		a, err := netip.ParseAddr(strings.TrimSpace(hops[i]))
		if err != nil {
			return
		}
		p.client = a.Unmap()
		p.chain = p.client.String() + ", " + p.chain
		if !s.trusts(p.client) {
			return
		}
	}
}

// requestHeader makes the header that goes to the endpoint.
func (x *exchange) requestHeader(upgrade string) std.Header {
	in := x.r.Header
	out := make(std.Header, len(in)+10)
	named := connectionNames(in)
	for k, v := range in {
		if !plainName(k) || hopByHop(k) || named[k] || !x.peer.trusted && spoofable(k) {
			continue
		}
		out[k] = v
	}
	if slices.Contains(strings.Split(strings.ToLower(in.Get("Te")), ","), "trailers") {
		out.Set("Te", "trailers")
	}
	if upgrade != "" {
		out.Set("Connection", "Upgrade")
		out.Set("Upgrade", upgrade)
	}
	p := x.peer
	out.Set("X-Request-Id", x.id)
	out.Set("X-Real-Ip", p.client.String())
	out.Set("X-Forwarded-For", p.chain)
	out.Set("X-Forwarded-Host", p.host)
	out.Set("X-Forwarded-Port", p.port)
	out.Set("X-Forwarded-Proto", p.scheme)
	out.Set("X-Forwarded-Scheme", p.scheme)
	out.Set("X-Scheme", p.scheme)
	if _, ok := out["User-Agent"]; !ok {
		out["User-Agent"] = nil // or net/http sends its own
	}
	return out
}

// connectionNames are the fields the Connection field makes hop-by-hop (RFC 9110
// section 7.6.1).
func connectionNames(h std.Header) map[string]bool {
	values := h["Connection"]
	if len(values) == 0 {
		return nil
	}
	out := make(map[string]bool)
	for _, v := range values {
		for _, name := range strings.Split(v, ",") {
			out[std.CanonicalHeaderKey(strings.TrimSpace(name))] = true
		}
	}
	return out
}

func hopByHop(k string) bool {
	switch k {
	case "Connection", "Proxy-Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Te", "Trailer",
		"Transfer-Encoding", "Upgrade", "Http2-Settings", "Expect":
		return true
	}
	return false
}

// plainName refuses names with underscores and the like: several back ends read
// X_Real_Ip as X-Real-Ip. nginx drops them too.
func plainName(k string) bool {
	for i := 0; i < len(k); i++ {
		c := k[i]
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-') {
			return false
		}
	}
	return k != ""
}

// spoofable are fields back ends believe because a proxy is meant to have written them.
func spoofable(k string) bool {
	switch k {
	case "Forwarded", "X-Real-Ip", "X-Scheme", "X-Rewrite-Url", "Proxy", "True-Client-Ip", "X-Client-Ip", "X-Cluster-Client-Ip":
		return true
	}
	for _, p := range []string{"X-Forwarded-", "X-Original-", "Ssl-Client-", "X-Ssl-Client-", "X-Auth-Request-"} {
		if strings.HasPrefix(k, p) {
			return true
		}
	}
	return false
}

// requestID keeps a client's id that can stand in a log, else makes one.
func requestID(given string) string {
	ok := given != "" && len(given) <= 128
	for i := 0; ok && i < len(given); i++ {
		c := given[i]
		ok = c > ' ' && c < 0x7f && c != '"' && c != '\\'
	}
	if ok {
		return given
	}
	var b [16]byte
	rand.Read(b[:]) //nolint:errcheck // never fails
	return hex.EncodeToString(b[:])
}

// upgradeOf is the protocol a client wants to switch to, empty if none we pass on.
// HTTP/2 over clear text would take later requests past every check made here.
func upgradeOf(r *std.Request) string {
	if r.ProtoMajor != 1 || !connectionNames(r.Header)["Upgrade"] {
		return ""
	}
	v := strings.TrimSpace(strings.Join(r.Header["Upgrade"], ","))
	l := strings.ToLower(v)
	if v == "" || strings.Contains(v, ",") || strings.HasPrefix(l, "h2") || strings.HasPrefix(l, "http") || strings.HasPrefix(l, "tls") {
		return ""
	}
	return v
}

// copyHeader passes the endpoint's header on.
func copyHeader(out, in std.Header) {
	named := connectionNames(in)
	for k, v := range in {
		if hopByHop(k) || named[k] || k == "Server" || k == "Strict-Transport-Security" && out[k] != nil {
			continue
		}
		out[k] = append(out[k], v...)
	}
	if _, ok := in["Content-Type"]; !ok {
		out["Content-Type"] = nil // or net/http guesses one
	}
}
