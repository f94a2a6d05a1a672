package dns

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"fairway/model"
)

// InvalidCorefile is the Reason of a Problem with what cannot be right; what is merely
// not honoured has another.
const InvalidCorefile = "InvalidCorefile"

// ParseCorefile reads what matters here of a CoreDNS configuration: the kubernetes
// block, forward (with other server blocks as routes of their own) and cache. Options
// not given have CoreDNS's defaults. Whatever is not honoured becomes a Problem that
// names it; its Object is of kind Corefile and its Field gives the line.
func ParseCorefile(text string) (Config, ForwardConfig, []model.Problem) {
	p := &corefileParser{cfg: Config{
		Domain: "cluster.local", Pods: PodsDisabled, TTL: 5, NegativeTTL: 5,
		DNSService: DefaultConfig().DNSService,
	}}
	blocks, imports, errs := readCorefile(text)
	for _, d := range imports {
		p.ignored(d, "other files are not read; what they say must stand here")
	}
	for _, err := range errs {
		p.problems = append(p.problems, corefileProblem("", InvalidCorefile, err.Error()))
	}
	for _, b := range blocks {
		p.server(b)
	}
	if !p.kubernetes {
		p.problems = append(p.problems, corefileProblem("", InvalidCorefile,
			"no kubernetes directive: the cluster domain cluster.local is served without Pod names"))
	}
	p.cfg.NegativeTTL = min(p.cfg.NegativeTTL, p.cfg.TTL)
	return p.cfg, p.forward, p.problems
}

type corefileParser struct {
	cfg        Config
	forward    ForwardConfig
	problems   []model.Problem
	kubernetes bool
}

func corefileProblem(field, reason, message string) model.Problem {
	return model.Problem{Object: model.Ref{Kind: "Corefile"}, Field: field, Reason: reason, Message: message}
}

// ignored reports a directive or option that has no effect here.
func (p *corefileParser) ignored(d directive, why string) {
	p.problems = append(p.problems, corefileProblem(field(d), "NotHonoured", strings.TrimSpace(d.name+" "+strings.Join(d.args, " "))+": "+why))
}

func (p *corefileParser) invalid(d directive, format string, args ...any) {
	p.problems = append(p.problems, corefileProblem(field(d), InvalidCorefile, d.name+": "+fmt.Sprintf(format, args...)))
}

func field(d directive) string { return fmt.Sprintf("line %d", d.line) }

// server reads one server block. Its zones route its forward; its cache is theirs.
func (p *corefileParser) server(b serverBlock) {
	zones := p.zones(b.keys)
	if len(zones) == 0 { // said already: nothing of such a block is in force
		return
	}
	var routes []Route
	var cache CacheConfig
	for _, d := range b.directives {
		switch d.name {
		case "kubernetes":
			p.readKubernetes(d, zones)
		case "forward":
			routes = append(routes, p.readForward(d, zones)...)
		case "cache":
			cache = p.readCache(d)
		case "hosts":
			p.readHosts(d, zones)
		case "health":
			p.readHealth(d)
		case "autopath":
			if !strings.HasPrefix(arg(d, len(d.args)-1), "@kubernetes") {
				p.ignored(d, "only @kubernetes knows the search list of the Pod that asks")
				continue
			}
			p.cfg.AutoPath = true
		case "transfer":
			p.readTransfer(d)
		case "ready":
			p.forward.Ready = cmp.Or(arg(d, 0), ":8181")
		case "prometheus":
			p.forward.Metrics = cmp.Or(arg(d, 0), "localhost:9153")
		case "errors", "loop", "loadbalance", "reload":
			// What they ask for is done anyway.
		default:
			p.ignored(d, "this directive is not honoured")
		}
	}
	for i := range routes {
		routes[i].Cache = cache
	}
	p.forward.Routes = append(p.forward.Routes, routes...)
}

// zones reads the names of a server block: [SCHEME://]ZONE[:PORT].
func (p *corefileParser) zones(keys []word) []string {
	var out []string
	for _, k := range keys {
		name := strings.TrimSuffix(k.text, ",")
		d := directive{name: name, line: k.line}
		if scheme, rest, ok := strings.Cut(name, "://"); ok {
			if scheme != "dns" {
				p.ignored(d, "only plain DNS is served")
				continue
			}
			name = rest
		}
		if i := strings.LastIndexByte(name, ':'); i >= 0 && !strings.Contains(name[i:], "/") {
			if port := name[i+1:]; port != "53" {
				p.ignored(d, "the listening port is set elsewhere")
			}
			name = name[:i]
		}
		switch {
		case name == "":
			name = "."
		case strings.ContainsAny(name, "/({"):
			p.ignored(d, "only names of zones are read here")
			continue
		}
		out = append(out, canonical(name))
	}
	return out
}

func (p *corefileParser) readKubernetes(d directive, zones []string) {
	if p.kubernetes {
		p.ignored(d, "only the first kubernetes block is served")
		return
	}
	p.kubernetes = true
	if len(d.args) > 0 {
		zones = canonicalAll(d.args)
	}
	domain := false
	for _, z := range zones {
		switch {
		case within(z, "in-addr.arpa.") || within(z, "ip6.arpa."):
			p.cfg.Reverse = append(p.cfg.Reverse, trimDot(z))
		case z == ".":
			p.invalid(d, "the root cannot be the cluster domain; name it, as in cluster.local")
		case domain:
			p.ignored(directive{name: "kubernetes", args: []string{trimDot(z)}, line: d.line}, "one cluster domain is served")
		default:
			domain = true
			p.cfg.Domain = trimDot(z)
		}
	}
	for _, o := range d.block {
		p.kubernetesOption(o, zones)
	}
}

func (p *corefileParser) kubernetesOption(o directive, zones []string) {
	switch o.name {
	case "pods":
		mode := PodMode(arg(o, 0))
		if !slices.Contains([]PodMode{PodsDisabled, PodsInsecure, PodsVerified}, mode) {
			p.invalid(o, "%q is not disabled, insecure or verified", mode)
			return
		}
		p.cfg.Pods = mode
	case "ttl":
		n, err := strconv.ParseUint(arg(o, 0), 10, 16)
		if err != nil || n > 3600 {
			p.invalid(o, "%q is not a number of seconds from 0 to 3600", arg(o, 0))
			return
		}
		p.cfg.TTL = uint32(n)
	case "fallthrough":
		p.cfg.Fallthrough = []string{"."}
		if len(o.args) > 0 {
			p.cfg.Fallthrough = trimAll(canonicalAll(o.args))
		}
	case "namespaces":
		p.cfg.Namespaces = append(p.cfg.Namespaces, o.args...)
	case "endpoint_pod_names":
		p.cfg.EndpointPodNames = true
	case "ignore":
		if arg(o, 0) != "empty_service" {
			p.invalid(o, "%q is not empty_service", arg(o, 0))
			return
		}
		p.cfg.IgnoreEmpty = true
	case "endpoint", "tls", "kubeconfig", "apiserver_qps", "apiserver_burst", "apiserver_max_inflight", "startup_timeout":
		p.ignored(o, "how the API server is reached is set elsewhere")
	default:
		p.ignored(o, "this option of kubernetes is not honoured")
	}
}

// trimAll drops the final dots again, but for the root.
func trimAll(names []string) []string {
	for i, n := range names {
		if n != "." {
			names[i] = trimDot(n)
		}
	}
	return names
}

func arg(d directive, i int) string {
	if i >= 0 && i < len(d.args) {
		return d.args[i]
	}
	return ""
}

func (p *corefileParser) readHealth(d directive) {
	p.forward.Health = cmp.Or(arg(d, 0), ":8080")
	for _, o := range d.block {
		if o.name != "lameduck" {
			p.ignored(o, "this option of health is not honoured")
			continue
		}
		v, err := time.ParseDuration(arg(o, 0))
		if err != nil || v < 0 {
			p.invalid(o, "%q is not a duration, as 5s", arg(o, 0))
			continue
		}
		p.forward.Lameduck = v
	}
}
