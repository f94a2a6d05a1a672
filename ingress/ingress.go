// Package ingress works out where a request goes: a Snapshot and this controller's
// settings come in, an immutable Table of hosts, paths, certificates and endpoints
// goes out with the Problems met; Table.Match says which route a request takes and
// why, Backend.Pick which endpoint. It never accepts a connection, resolves a name,
// keeps a counter or reads a clock: the server that holds the Table does.
package ingress

import (
	"crypto/tls"
	"net/netip"
	"regexp"

	"fairway/model"
)

// ControllerName is the spec.controller of the IngressClasses that are always ours.
const ControllerName = "fairway.io/ingress"

// Config is what this controller was told about itself. The zero value serves the
// IngressClasses of ControllerName and nothing else.
type Config struct {
	// Controllers are further spec.controller strings to serve, such as
	// k8s.io/ingress-nginx when taking over from it.
	Controllers []string
	// ClassNames are values of the annotation kubernetes.io/ingress.class to serve,
	// beside the names of our IngressClasses (the annotation predates the object).
	ClassNames []string
	// ClassByName serves spec.ingressClassName by ClassNames too, whatever controller
	// the IngressClass names (ingress-nginx --ingress-class-by-name).
	ClassByName bool
	// WithoutClass serves Ingresses that name no class
	// (ingress-nginx --watch-ingress-without-class).
	WithoutClass bool
	// AdmitDefaultClass gives an Ingress without class the default IngressClass, as
	// the API server's admission does; for objects that came from files.
	AdmitDefaultClass bool
	// DisableCatchAll refuses Ingresses that would answer for every host by a
	// defaultBackend without rules.
	DisableCatchAll bool
	// DefaultBackend answers what nothing else does; nil is the built-in 404.
	DefaultBackend *Target
	// DefaultCertificate names the Secret used where no other certificate fits.
	DefaultCertificate model.Name
	// DisableSSLRedirect turns the redirect of hosts with TLS off unless an
	// annotation asks for it (ingress-nginx ConfigMap ssl-redirect).
	DisableSSLRedirect bool
	// DisableExternalName refuses ExternalName Services as backends.
	DisableExternalName bool
	// KeepSlashes leaves // in request paths; by default runs are merged.
	KeepSlashes bool
	// CookieKey makes affinity cookies unguessable; replicas must share it.
	CookieKey []byte
	// AnnotationPrefix is nginx.ingress.kubernetes.io when empty.
	AnnotationPrefix string
	// PublishedAddresses are the IPs and hostnames status should say.
	PublishedAddresses []string
}

// Target names a Service port.
type Target struct {
	Service    model.Name
	PortName   string
	PortNumber uint16
}

// Kind is how a route's path is compared.
type Kind string

// The kinds of route. Plain is a string prefix, which ImplementationSpecific means
// in ingress-nginx; Glob has * and ?, which it means for ALB and GCE; Regex comes with
// the annotation use-regex. Default is a defaultBackend.
const (
	Exact   Kind = "Exact"
	Prefix  Kind = "Prefix"
	Plain   Kind = "Plain"
	Glob    Kind = "Glob"
	Regex   Kind = "Regex"
	Default Kind = "Default"
)

// Route is one host and path with what answers there. It is never changed once its
// Table is built.
type Route struct {
	// Host is the rule's: exact, *.suffix, or empty for any.
	Host string
	// Path is normalised as requests are; empty for Default.
	Path    string
	Kind    Kind
	Ingress model.Name // zero for the controller's own default backend
	Backend *Backend
	// Settings come from the Ingress's annotations; never nil.
	Settings *Settings
	// Refused is why the route answers 503 whatever its endpoints; empty if not.
	Refused string

	why  string // why the Ingress is ours
	rank int    // literal bytes a match is sure of; the longest wins
	re   *regexp.Regexp
}

// Backend is one Service port with the endpoints that can be chosen.
type Backend struct {
	// Name is namespace-service-port, ingress-nginx's upstream name.
	Name string
	Target
	// Endpoints are ready, in address order.
	Endpoints []Endpoint
	// Draining are terminating but still serving: only for sessions that hold them.
	Draining []Endpoint
	// ExternalName is to be resolved by the server; ExternalPort goes with it.
	ExternalName string
	ExternalPort uint16
	// Missing is why there can be no endpoint (no such Service or port); empty if not.
	Missing string

	sticky map[string]Endpoint // by cookie value; only when a route has affinity
}

// Endpoint is one address of a Backend.
type Endpoint struct {
	Addr netip.AddrPort
	Pod  model.Name
	Node string
	// Cookie is the affinity cookie's value, opaque and stable for this endpoint;
	// empty when no route of the Backend has affinity.
	Cookie string
}

// Certificate is a parsed TLS Secret.
type Certificate struct {
	Secret model.Name
	TLS    *tls.Certificate // nil when the Secret could not be used
	Sum    [32]byte         // SHA-256 of the leaf

	reason, message string // the Problem when TLS is nil
}

// Table is everything the server needs, built once and replaced whole.
type Table struct {
	hosts    map[string]*host // "shop.example.com", "*.example.com", "" for any
	catchAll *Route
	tlsHosts map[string]*hostTLS
	defCert  *Certificate
	owned    []*owned
	foreign  []*owned // Ingresses that are not ours; only traces speak of them
	cfg      Config

	// What the next Build may take over, by the pointer it was made from.
	settings map[*model.Ingress]*Settings
	backends map[backendKey]*Backend
	certs    map[*model.Secret]*Certificate
	regexes  map[string]compiled // by the path as written
}

// owned is an Ingress and why it is ours, or not.
type owned struct {
	*model.Ingress
	why      string
	settings *Settings
}

// host is the routes of one host. Exact and Prefix are found by map, the rest is
// short and searched in order.
type host struct {
	name     string
	exact    map[string]*Route
	prefix   map[string]*Route // keyed without trailing slash, "" for /
	patterns []*Route          // longest literal part first
	pattern  map[patternKey]*Route
	fallback *Route   // defaultBackend of an Ingress that has rules
	routes   []*Route // all, in order of precedence
}

// patternKey tells the routes of patterns apart.
type patternKey struct {
	kind Kind
	path string
}

// hostTLS is the certificate chosen for a host by an Ingress.
type hostTLS struct {
	cert    *Certificate // nil: the default certificate
	secret  model.Name
	ingress model.Name
}

// Routes calls f with every route, default backends included.
func (t *Table) Routes(f func(*Route)) {
	for _, h := range t.hosts {
		for _, r := range h.routes {
			f(r)
		}
		if h.fallback != nil {
			f(h.fallback)
		}
	}
	if t.catchAll != nil {
		f(t.catchAll)
	}
}
