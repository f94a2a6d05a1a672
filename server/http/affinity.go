package http

import (
	std "net/http"
	"strings"
	"time"

	"fairway/ingress"
)

// cookie is the Set-Cookie value that ties a client to an endpoint.
func cookie(a *ingress.Affinity, r *ingress.Route, value string, https bool, now time.Time) string {
	c := std.Cookie{Name: a.Name, Value: value, Path: a.Path, Domain: a.Domain, MaxAge: a.MaxAge, HttpOnly: true, Secure: https}
	if c.Path == "" {
		c.Path = cookiePath(r)
	}
	if a.Expires > 0 {
		c.Expires = now.Add(time.Duration(a.Expires) * time.Second)
	}
	if a.Secure != nil {
		c.Secure = *a.Secure
	}
	switch a.SameSite {
	case "None":
		c.SameSite = std.SameSiteNoneMode
	case "Lax":
		c.SameSite = std.SameSiteLaxMode
	case "Strict":
		c.SameSite = std.SameSiteStrictMode
	}
	return c.String()
}

// cookiePath is the route's path, as in ingress-nginx, as far as it is literal.
func cookiePath(r *ingress.Route) string {
	p := r.Path
	if r.Kind == ingress.Regex || r.Kind == ingress.Default {
		return "/"
	}
	if i := strings.IndexAny(p, "*?"); i >= 0 {
		p = p[:strings.LastIndexByte(p[:i], '/')+1]
	}
	if p = strings.TrimRight(p, "/"); p == "" || strings.Contains(p, ";") {
		return "/"
	}
	return p
}
