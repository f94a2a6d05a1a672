package dns

import (
	"net/netip"
	"slices"
	"strings"

	"fairway/model"
)

// PodMode says how names of the form <a-b-c-d>.<ns>.pod.<domain> are answered.
type PodMode string

// The three modes. Insecure answers from the name alone, in namespaces that exist;
// Verified needs a Pod of that address.
const (
	PodsDisabled PodMode = "disabled"
	PodsInsecure PodMode = "insecure"
	PodsVerified PodMode = "verified"
)

// Config is how the cluster domain is served.
type Config struct {
	// Domain is the cluster domain, cluster.local when empty. A final dot and upper
	// case are accepted.
	Domain string
	// Reverse are the zones of addresses served here, as in-addr.arpa.
	Reverse []string
	// Fallthrough are the zones in which a name that does not exist here is asked
	// upstream instead of denied; "." stands for all.
	Fallthrough []string
	Pods        PodMode
	TTL         uint32 // seconds, of every record but those below
	// NegativeTTL is how long a denial may be kept (RFC 2308), in seconds.
	NegativeTTL uint32
	// CompleteSvc appends the domain to an ExternalName that ends in .svc.
	CompleteSvc bool
	// EndpointPodNames names an endpoint without hostname by its Pod.
	EndpointPodNames bool
	// IgnoreEmpty denies a ClusterIP Service that has no ready endpoint.
	IgnoreEmpty bool
	// Namespaces, when not empty, are the only ones served.
	Namespaces []string
	// AutoPath answers the first name of a Pod's search list with what the rest of the list
	// would lead to. It needs the Pods.
	AutoPath bool
	// HostSearch are the search domains of the nodes' own resolv.conf, which kubelet puts
	// behind the cluster's.
	HostSearch []string
	// DNSService is the Service whose name the NS record of the domain carries.
	DNSService model.Name
	// TransferTo may have whole zones (AXFR); nobody by default.
	TransferTo []netip.Prefix
	// Serial is the least serial number of a changed zone: seconds since 1970, by
	// custom. A changed zone never has a smaller serial than the one before it.
	Serial uint32
}

// DefaultConfig is what kubeadm sets up, but for denials, which live 5 seconds.
func DefaultConfig() Config {
	return Config{
		Domain:      "cluster.local",
		Reverse:     []string{"in-addr.arpa", "ip6.arpa"},
		Fallthrough: []string{"in-addr.arpa", "ip6.arpa"},
		Pods:        PodsInsecure,
		TTL:         30,
		NegativeTTL: 5,
		DNSService:  model.Name{Namespace: "kube-system", Name: "kube-dns"},
	}
}

// normal gives every name its canonical form: lower case, final dot.
func (c Config) normal() Config {
	if c.Domain == "" {
		c.Domain = "cluster.local"
	}
	if c.Pods == "" {
		c.Pods = PodsDisabled
	}
	c.Domain = canonical(c.Domain)
	c.Reverse = canonicalAll(c.Reverse)
	c.Fallthrough = canonicalAll(c.Fallthrough)
	return c
}

// equal compares everything a record depends on; Serial is not part of it.
func (c Config) equal(o Config) bool {
	return c.Domain == o.Domain && slices.Equal(c.Reverse, o.Reverse) && slices.Equal(c.Fallthrough, o.Fallthrough) &&
		c.Pods == o.Pods && c.TTL == o.TTL && c.NegativeTTL == o.NegativeTTL && c.CompleteSvc == o.CompleteSvc &&
		c.EndpointPodNames == o.EndpointPodNames && c.IgnoreEmpty == o.IgnoreEmpty &&
		slices.Equal(c.Namespaces, o.Namespaces) && slices.Equal(c.TransferTo, o.TransferTo) &&
		c.AutoPath == o.AutoPath && slices.Equal(c.HostSearch, o.HostSearch) && c.DNSService == o.DNSService
}

func (c Config) exposes(namespace string) bool {
	return len(c.Namespaces) == 0 || slices.Contains(c.Namespaces, namespace)
}

func canonicalAll(names []string) []string {
	out := make([]string, len(names))
	for i, n := range names {
		out[i] = canonical(n)
	}
	return out
}

// canonical lower-cases ASCII and adds the final dot. It does not allocate for a name
// that has both already.
func canonical(name string) string {
	for i := range len(name) {
		if c := name[i]; c >= 'A' && c <= 'Z' {
			name = lower(name)
			break
		}
	}
	if !strings.HasSuffix(name, ".") {
		name += "."
	}
	return name
}

// lower differs from strings.ToLower in leaving all but ASCII alone (RFC 4343).
func lower(s string) string {
	b := []byte(s)
	for i, c := range b {
		if c >= 'A' && c <= 'Z' {
			b[i] = c + 'a' - 'A'
		}
	}
	return string(b)
}

// within tells whether canonical name is zone or below it.
func within(name, zone string) bool {
	if zone == "." || name == zone {
		return true
	}
	return strings.HasSuffix(name, zone) && name[len(name)-len(zone)-1] == '.'
}
