package dns

import (
	"slices"
	"time"
)

// ForwardConfig is what happens to questions that no zone here decides.
type ForwardConfig struct {
	// Routes say who is asked; the longest Zone that holds the name wins. A name
	// without a route is refused.
	Routes []Route
	// Hosts are asked before any upstream, in order.
	Hosts []HostsConfig
	// Lameduck is how long the server goes on answering after it was told to stop.
	Lameduck time.Duration
	// Health, Ready and Metrics are the addresses, HOST:PORT, of CoreDNS's health, ready
	// and prometheus; empty ones are not served.
	Health, Ready, Metrics string
}

// Route sends the names in Zone to Upstreams.
type Route struct {
	Zone string // canonical; "." for everything
	// Block is the zone of the server block it is in, canonical: hosts of a block that is
	// less specific are not asked.
	Block string
	// Upstreams are ADDRESS, ADDRESS:PORT or the path of a resolv.conf, whose
	// nameservers are then used.
	Upstreams []string
	Except    []string // canonical names within Zone that are refused
	Policy    Policy
	// MaxFails is the number of failures in a row that mark an upstream down; 0 never
	// does.
	MaxFails int
	// HealthCheck is the interval at which one that failed is probed.
	HealthCheck time.Duration
	// MaxConcurrent is the number of questions on their way at once, beyond which more
	// are refused; 0 is no limit.
	MaxConcurrent int
	ForceTCP      bool // else UDP first, TCP when an answer is cut
	// Failover are response codes after which the next upstream is asked.
	Failover []Rcode
	Cache    CacheConfig
}

// Policy is the order in which upstreams are tried.
type Policy string

// The three policies.
const (
	Random     Policy = "random"
	RoundRobin Policy = "round_robin"
	Sequential Policy = "sequential"
)

// CacheConfig bounds what is kept of upstream answers; a MaxTTL of 0 keeps nothing.
type CacheConfig struct {
	Success, Denial CacheLimits
	ServFail        time.Duration // how long a failure is kept
	// Zones are the canonical names within which answers are kept; none are all.
	Zones []string
	// Prefetch asks anew before an answer ends that was asked for so many times, never
	// PrefetchGap apart, once less than PrefetchShare percent of its time is left; 0 does
	// not.
	Prefetch      int
	PrefetchGap   time.Duration
	PrefetchShare int
	// ServeStale is how long after its end an answer may still be given (RFC 8767), with a
	// TTL of 0: where no upstream answers, or, with StaleAtOnce, before any is asked.
	ServeStale  time.Duration
	StaleAtOnce bool
	KeepTTL     bool // answers from the cache have the TTL they came with
}

// CacheLimits bounds one kind of answers.
type CacheLimits struct {
	Capacity int // entries
	MaxTTL   time.Duration
	MinTTL   time.Duration
	Except   []string // canonical names within which nothing of this kind is kept
}

// Keeps tells whether what is said of canonical name may be kept.
func (c CacheConfig) Keeps(name string, denial bool) bool {
	limits := c.Success
	if denial {
		limits = c.Denial
	}
	in := func(zone string) bool { return within(name, zone) }
	return limits.MaxTTL > 0 && (len(c.Zones) == 0 || slices.ContainsFunc(c.Zones, in)) && !slices.ContainsFunc(limits.Except, in)
}

// DefaultForwardConfig is what kubeadm sets up: the node's resolvers, at most 1,000
// questions at once, answers kept for at most 30 seconds.
func DefaultForwardConfig() ForwardConfig {
	r := newRoute(".", "/etc/resolv.conf")
	r.MaxConcurrent = 1000
	r.Cache = defaultCache(30 * time.Second)
	return ForwardConfig{Routes: []Route{r}, Lameduck: 5 * time.Second, Health: ":8080", Ready: ":8181", Metrics: ":9153"}
}

func newRoute(zone string, upstreams ...string) Route {
	return Route{Zone: zone, Block: zone, Upstreams: upstreams, Policy: Random, MaxFails: 2, HealthCheck: 500 * time.Millisecond}
}

// defaultCache caps both kinds of answers at ttl.
func defaultCache(ttl time.Duration) CacheConfig {
	limits := CacheLimits{Capacity: 9984, MaxTTL: ttl, MinTTL: 5 * time.Second}
	return CacheConfig{Success: limits, Denial: limits, ServFail: 5 * time.Second}
}
