package dns

import (
	"strconv"
	"strings"
	"time"
)

// readCache reads cache [TTL] [ZONES…] {options}. The cluster domain is never cached.
func (p *corefileParser) readCache(d directive) CacheConfig {
	c := defaultCache(time.Hour)
	c.Denial.MaxTTL = 30 * time.Minute
	args := d.args
	if ttl, ok := seconds(arg(d, 0)); ok {
		c.Success.MaxTTL, c.Denial.MaxTTL = ttl, ttl
		args = args[1:]
	}
	if len(args) > 0 {
		c.Zones = canonicalAll(args)
	}
	for _, o := range d.block {
		p.cacheOption(o, &c)
	}
	return c
}

func (p *corefileParser) cacheOption(o directive, c *CacheConfig) {
	switch o.name {
	case "success":
		p.cacheLimits(o, &c.Success)
	case "denial":
		p.cacheLimits(o, &c.Denial)
	case "servfail":
		v, err := time.ParseDuration(arg(o, 0))
		if err != nil || v < 0 || v > 5*time.Minute {
			p.invalid(o, "%q is not a duration of at most 5m", arg(o, 0))
			return
		}
		c.ServFail = v
	case "disable":
		p.cacheDisable(o, c)
	case "keepttl":
		c.KeepTTL = true
	case "prefetch":
		p.cachePrefetch(o, c)
	case "serve_stale":
		p.cacheStale(o, c)
	default:
		p.ignored(o, "this option of cache is not honoured")
	}
}

// cacheLimits reads CAPACITY [TTL] [MINTTL].
func (p *corefileParser) cacheLimits(o directive, l *CacheLimits) {
	p.number(o, &l.Capacity)
	for i, into := range []*time.Duration{&l.MaxTTL, &l.MinTTL} {
		if len(o.args) <= i+1 {
			return
		}
		v, ok := seconds(o.args[i+1])
		if !ok {
			p.invalid(o, "%q is not a number of seconds", o.args[i+1])
			return
		}
		*into = v
	}
}

func (p *corefileParser) cacheDisable(o directive, c *CacheConfig) {
	kind := arg(o, 0)
	if kind != "success" && kind != "denial" {
		p.invalid(o, "%q is not success or denial", kind)
		return
	}
	if len(o.args) > 1 {
		limits := &c.Success
		if kind == "denial" {
			limits = &c.Denial
		}
		for _, zone := range canonicalAll(o.args[1:]) {
			if zone != canonical(p.cfg.Domain) {
				limits.Except = append(limits.Except, zone)
			}
		}
		return
	}
	if kind == "success" {
		c.Success.MaxTTL = 0
	} else {
		c.Denial.MaxTTL = 0
	}
}

func seconds(s string) (time.Duration, bool) {
	n, err := strconv.ParseUint(s, 10, 31)
	return time.Duration(n) * time.Second, err == nil
}

// cachePrefetch reads prefetch AMOUNT [DURATION [PERCENT%]].
func (p *corefileParser) cachePrefetch(o directive, c *CacheConfig) {
	p.number(o, &c.Prefetch)
	c.PrefetchGap, c.PrefetchShare = time.Minute, 10
	if len(o.args) > 1 {
		p.duration(o, 1, &c.PrefetchGap)
	}
	if len(o.args) > 2 {
		n, err := strconv.Atoi(strings.TrimSuffix(o.args[2], "%"))
		if err != nil || n < 1 || n > 90 || !strings.HasSuffix(o.args[2], "%") {
			p.invalid(o, "%q is not from 1%% to 90%%", o.args[2])
			return
		}
		c.PrefetchShare = n
	}
}

// cacheStale reads serve_stale [DURATION [verify|immediate]].
func (p *corefileParser) cacheStale(o directive, c *CacheConfig) {
	c.ServeStale, c.StaleAtOnce = time.Hour, true
	if len(o.args) > 0 {
		p.duration(o, 0, &c.ServeStale)
	}
	if len(o.args) > 1 {
		switch strings.ToLower(o.args[1]) {
		case "verify":
			c.StaleAtOnce = false
		case "immediate":
		default:
			p.invalid(o, "%q is not verify or immediate", o.args[1])
		}
	}
}
