package ingress

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"strings"

	"fairway/model"
)

// parseCertificate reads a TLS Secret; what is wrong with it becomes reason and
// message, and its hosts get the default certificate.
func parseCertificate(name model.Name, s *model.Secret) *Certificate {
	c := &Certificate{Secret: name}
	if s == nil {
		c.reason, c.message = "MissingSecret", fmt.Sprintf("Secret %s does not exist", name)
		return c
	}
	crt, key := s.Data["tls.crt"], s.Data["tls.key"]
	if len(crt) == 0 || len(key) == 0 {
		c.reason = "InvalidCertificate"
		c.message = fmt.Sprintf("Secret %s of type %q lacks tls.crt or tls.key; make it with kubectl create secret tls", name, s.Type)
		return c
	}
	pair, err := tls.X509KeyPair(crt, key)
	if err != nil {
		c.reason, c.message = "InvalidCertificate", fmt.Sprintf("Secret %s: %v", name, err)
		return c
	}
	if pair.Leaf == nil {
		if pair.Leaf, err = x509.ParseCertificate(pair.Certificate[0]); err != nil {
			c.reason, c.message = "InvalidCertificate", fmt.Sprintf("Secret %s: %v", name, err)
			return c
		}
	}
	c.TLS, c.Sum = &pair, sha256.Sum256(pair.Certificate[0])
	return c
}

// covers tells whether the certificate is for host, by its names or, as old ones
// have none, by its common name.
func (c *Certificate) covers(host string) bool {
	if c.TLS == nil {
		return false
	}
	probe := strings.Replace(host, "*", "wildcard", 1)
	leaf := c.TLS.Leaf
	if len(leaf.DNSNames) > 0 {
		return leaf.VerifyHostname(probe) == nil
	}
	cn := strings.ToLower(leaf.Subject.CommonName)
	return cn == host || strings.HasPrefix(cn, "*.") && wildcardOf(probe) == cn
}

// names are the hosts a certificate is for.
func (c *Certificate) names() []string {
	if c.TLS == nil {
		return nil
	}
	if len(c.TLS.Leaf.DNSNames) == 0 {
		return []string{strings.ToLower(c.TLS.Leaf.Subject.CommonName)}
	}
	out := make([]string, 0, len(c.TLS.Leaf.DNSNames))
	for _, n := range c.TLS.Leaf.DNSNames {
		out = append(out, strings.ToLower(n))
	}
	return out
}

// wildcardOf is the single-label wildcard that would match host, empty if none.
func wildcardOf(host string) string {
	if i := strings.IndexByte(host, '.'); i > 0 {
		return "*" + host[i:]
	}
	return ""
}

func (b *builder) certificate(name model.Name) *Certificate {
	s := b.snap.Secrets[name]
	if s == nil {
		return parseCertificate(name, nil)
	}
	c := b.table.certs[s]
	if c == nil {
		if c = b.prev.certs[s]; c == nil {
			c = parseCertificate(name, s)
		}
		b.table.certs[s] = c
	}
	return c
}

// tlsListed takes the hosts each Ingress lists; the oldest Ingress wins a host.
func (b *builder) tlsListed(o *owned) {
	for n, t := range o.TLS {
		entry := &hostTLS{ingress: o.Name}
		if t.Secret != "" {
			entry.secret = model.Name{Namespace: o.Name.Namespace, Name: t.Secret}
			entry.cert = b.certificate(entry.secret)
			if entry.cert.TLS == nil {
				b.problem(o, fmt.Sprintf("spec.tls[%d].secretName", n), entry.cert.reason,
					entry.cert.message+"; its hosts get the default certificate")
			}
		}
		for k, h := range t.Hosts {
			b.tlsHost(o, fmt.Sprintf("spec.tls[%d].hosts[%d]", n, k), h, entry)
		}
	}
}

func (b *builder) tlsHost(o *owned, field, h string, entry *hostTLS) {
	h, ok := ruleHost(h)
	if !ok || h == "" {
		b.problem(o, field, "InvalidHost", fmt.Sprintf("%q is not a host name; it is left out", h))
		return
	}
	if old := b.table.tlsHosts[h]; old != nil {
		if old.secret != entry.secret {
			b.problem(o, field, "DuplicateTLS", fmt.Sprintf("host %s already has the certificate of older Ingress %s, which stays", h, old.ingress))
		}
		return
	}
	if c := entry.cert; c != nil && c.TLS != nil && !c.covers(h) {
		b.problem(o, field, "CertificateMismatch", fmt.Sprintf("the certificate in Secret %s is not for %s (it is for %s); clients will refuse it",
			c.Secret, h, strings.Join(c.names(), ", ")))
	}
	b.table.tlsHosts[h] = entry
}

// tlsImplied gives hosts no list names a certificate of their Ingress that covers
// them; an Ingress for any host gets one by the certificate's own names.
func (b *builder) tlsImplied(o *owned) {
	for _, t := range o.TLS {
		if t.Secret == "" {
			continue
		}
		name := model.Name{Namespace: o.Name.Namespace, Name: t.Secret}
		c := b.certificate(name)
		any := len(o.Rules) == 0
		for _, r := range o.Rules {
			any = any || r.Host == ""
			b.imply(r.Host, c, o)
		}
		if any && len(t.Hosts) == 0 {
			for _, h := range c.names() {
				b.imply(h, c, o)
			}
		}
	}
}

func (b *builder) imply(h string, c *Certificate, o *owned) {
	if h, ok := ruleHost(h); ok && h != "" && b.table.tlsHosts[h] == nil && c.covers(h) {
		b.table.tlsHosts[h] = &hostTLS{cert: c, secret: c.Secret, ingress: o.Name}
	}
}

func (b *builder) defaultCertificate() {
	name := b.table.cfg.DefaultCertificate
	if name == (model.Name{}) {
		return
	}
	c := b.certificate(name)
	if c.TLS == nil {
		b.problems = append(b.problems, model.Problem{
			Object: model.Ref{Kind: "Secret", Name: name}, Reason: c.reason,
			Message: c.message + "; the built-in certificate stands in as default",
		})
		return
	}
	b.table.defCert = c
}

// tlsFor finds the entry for a normalised host: exact, then wildcard, else nil.
func (t *Table) tlsFor(host string) (name string, entry *hostTLS) {
	if e := t.tlsHosts[host]; e != nil {
		return host, e
	}
	if w := wildcardOf(host); w != "" {
		if e := t.tlsHosts[w]; e != nil {
			return w, e
		}
	}
	return "", nil
}

// Certificate chooses by SNI name: exact host, wildcard, the default certificate; nil
// means the server's built-in one.
func (t *Table) Certificate(sni string) *Certificate {
	host, ok := NormalHost(sni)
	if ok {
		if _, e := t.tlsFor(host); e != nil && e.cert != nil && e.cert.TLS != nil {
			return e.cert
		}
	}
	return t.defCert
}

// SameTLS tells whether two hosts are served with the same certificate, that is,
// whether a request for one may come over a connection made for the other.
func (t *Table) SameTLS(a, b string) bool {
	x, y := t.Certificate(a), t.Certificate(b)
	return x == y || x != nil && y != nil && x.Sum == y.Sum
}

// RedirectsToHTTPS tells whether a plain request for host that matched r must be
// answered 308 to https. ACME's HTTP-01 challenge (RFC 8555 section 8.3) is exempt.
func (t *Table) RedirectsToHTTPS(r *Route, host, path string) bool {
	s := r.Settings
	if !s.SSLRedirect && !s.ForceSSLRedirect || strings.HasPrefix(path, "/.well-known/acme-challenge/") {
		return false
	}
	if s.ForceSSLRedirect {
		return true
	}
	_, entry := t.tlsFor(host)
	return entry != nil
}

// Secured tells whether host is served with a certificate of its own.
func (t *Table) Secured(host string) bool {
	_, e := t.tlsFor(host)
	return e != nil && e.cert != nil && e.cert.TLS != nil
}

// TLSHosts calls f with every host that has a usable certificate.
func (t *Table) TLSHosts(f func(host string, c *Certificate)) {
	for h, e := range t.tlsHosts {
		if e.cert != nil && e.cert.TLS != nil {
			f(h, e.cert)
		}
	}
}
