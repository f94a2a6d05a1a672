package ingress

import (
	"strconv"
	"strings"
	"time"
)

// nginx reads one annotation of ingress-nginx.
func (r *reader) nginx(name, value string) {
	s := r.s
	switch name {
	case "ssl-redirect":
		r.boolean(value, func(b bool) { s.SSLRedirect = b })
	case "force-ssl-redirect":
		r.boolean(value, func(b bool) { s.ForceSSLRedirect = b })
	case "proxy-body-size":
		r.size(value)
	case "proxy-connect-timeout":
		r.seconds(value, 1, func(n int) { s.ConnectTimeout = time.Duration(n) * time.Second })
	case "proxy-read-timeout":
		r.seconds(value, 1, func(n int) { s.ReadTimeout = time.Duration(n) * time.Second })
	case "proxy-send-timeout":
		r.seconds(value, 1, func(n int) { s.SendTimeout = time.Duration(n) * time.Second })
	case "use-regex":
		r.boolean(value, func(b bool) { s.Regex = s.Regex || b })
	case "canary":
		r.canary(value)
	case "backend-protocol":
		r.protocol(value)
	case "service-upstream":
		r.verdict(Ignored, value, "requests go to Pod addresses, which needs no reload here")
	case "rewrite-target":
		s.Regex = true // as in ingress-nginx
		r.verdict(Ignored, value, "the path is forwarded unchanged")
	case "configuration-snippet", "server-snippet", "stream-snippet", "auth-snippet":
		r.snippet(value)
	default:
		if !r.session(name, value) {
			r.other(name, value)
		}
	}
}

// session reads the affinity family; false when name is not of it.
func (r *reader) session(name, value string) bool {
	a := &r.affinity
	switch name {
	case "affinity":
		r.text(value, "cookie", func(v string) bool { return v == "cookie" }, func(string) { r.cookie = true })
	case "affinity-mode":
		effect, note := Same, ""
		if value != "persistent" {
			effect, note = Differs, "sessions stay with their Pod, also when Pods are added"
		}
		r.verdict(effect, value, note)
	case "session-cookie-name":
		r.text(value, "a cookie name", isToken, func(v string) { a.Name = v })
	case "session-cookie-path":
		r.text(value, "a path", isCookiePath, func(v string) { a.Path = v })
	case "session-cookie-domain":
		r.text(value, "a domain name", isDomain, func(v string) { a.Domain = v })
	case "session-cookie-samesite":
		ok := func(v string) bool { return v == "None" || v == "Lax" || v == "Strict" }
		r.text(value, "None, Lax or Strict", ok, func(v string) { a.SameSite = v })
	case "session-cookie-max-age":
		r.seconds(value, 0, func(n int) { a.MaxAge = n })
	case "session-cookie-expires":
		r.seconds(value, 0, func(n int) { a.Expires = n })
	case "session-cookie-secure":
		r.boolean(value, func(b bool) { a.Secure = &b })
	default:
		return false
	}
	return true
}

// other is the rest: what protects something is refused, what does not is ignored.
func (r *reader) other(name, value string) {
	if switchedOff(name, value) {
		r.verdict(Same, value, "")
		return
	}
	if protects(name, value) {
		r.verdict(Refused, value, "not supported, and serving without it would be unsafe")
		return
	}
	r.verdict(Ignored, value, "not supported")
}

// switchedOff tells whether the annotation asks for what happens anyway: nothing.
func switchedOff(name, value string) bool {
	switch name {
	case "enable-cors", "enable-modsecurity", "enable-owasp-core-rules", "enable-opentelemetry", "enable-rewrite-log",
		"enable-global-auth", "ssl-passthrough", "secure-backends", "proxy-ssl-verify":
		on, err := strconv.ParseBool(value)
		return value == "off" || err == nil && !on
	}
	return false
}

// protects names the annotations that keep somebody out or something secret.
func protects(name, value string) bool {
	switch name {
	case "whitelist-source-range", "allowlist-source-range", "denylist-source-range", "satisfy":
		return true
	case "enable-modsecurity", "enable-owasp-core-rules", "ssl-passthrough", "secure-backends", "proxy-ssl-verify":
		return true // those switched off were sorted out before
	case "modsecurity-snippet", "modsecurity-transaction-id", "proxy-ssl-secret":
		return true
	}
	for _, p := range []string{"auth-", "limit-"} {
		if strings.HasPrefix(name, p) {
			return true
		}
	}
	return false
}

// canary routes never stand for the main ones.
func (r *reader) canary(value string) {
	if on, _ := strconv.ParseBool(value); on {
		r.s.Canary = true
		r.verdict(Ignored, value, "the canary gets no traffic, the main Ingress all")
		return
	}
	r.verdict(Same, value, "")
}

// protocol: a TLS or gRPC back end spoken to in clear HTTP/1 would leak, then fail.
func (r *reader) protocol(value string) {
	if strings.EqualFold(value, "HTTP") {
		r.verdict(Same, value, "")
		return
	}
	r.verdict(Refused, value, "only HTTP/1 back ends without TLS are supported")
}

// snippet refuses every directive that is not known to be decoration: a list of what
// protects could never be complete.
func (r *reader) snippet(value string) {
	for _, line := range strings.FieldsFunc(value, func(c rune) bool { return c == ';' || c == '\n' || c == '{' || c == '}' }) {
		f := strings.Fields(line)
		if len(f) > 0 && !strings.HasPrefix(f[0], "#") && !decoration(f[0]) {
			r.verdict(Refused, value, "directive "+strconv.Quote(f[0])+" is not supported and may protect something")
			return
		}
	}
	r.verdict(Ignored, value, "snippets are not supported")
}

func decoration(directive string) bool {
	switch directive {
	case "add_header", "more_set_headers", "expires", "etag", "charset", "access_log", "error_log", "log_subrequest",
		"sub_filter", "sub_filter_once", "sub_filter_types", "chunked_transfer_encoding", "tcp_nodelay", "tcp_nopush":
		return true
	}
	for _, p := range []string{"gzip", "brotli", "proxy_buffer", "proxy_busy_buffers", "client_body_buffer", "keepalive_", "large_client_header"} {
		if strings.HasPrefix(directive, p) {
			return true
		}
	}
	return directive == "proxy_read_timeout" || directive == "proxy_send_timeout" || directive == "proxy_connect_timeout"
}

// alb reads one annotation of the AWS load balancer controller.
func (r *reader) alb(name, value string) {
	switch name {
	case "target-type":
		if value == "ip" {
			r.verdict(Same, value, "")
		} else {
			r.verdict(Differs, value, "requests go to Pod addresses, not through NodePorts")
		}
	case "ssl-redirect":
		r.s.ForceSSLRedirect = true
		r.verdict(Differs, value, "redirects to https with 308")
	case "inbound-cidrs", "security-groups", "security-group-prefix-lists", "wafv2-acl-arn", "wafv2-acl-name", "waf-acl-id", "web-acl-id",
		"mutual-authentication", "shield-advanced-protection", "auth-type", "auth-idp-cognito", "auth-idp-oidc", "auth-on-unauthenticated-request",
		"auth-scope", "auth-session-cookie", "auth-session-timeout", "jwt-validation":
		r.verdict(Refused, value, "not supported, and serving without it would be unsafe")
	case "backend-protocol":
		r.protocol(value)
	default:
		r.verdict(Ignored, value, "not supported")
	}
}

// gce reads the annotations of the Google controller; the class is read elsewhere.
func (r *reader) gce(name, value string) {
	switch name {
	case "ingress.allow-http":
		if on, err := strconv.ParseBool(value); err == nil && !on {
			r.s.ForceSSLRedirect = true
			r.verdict(Differs, value, "http is redirected to https rather than closed")
		}
	case "ingress.global-static-ip-name", "ingress.regional-static-ip-name", "pre-shared-cert", "managed-certificates", "v1beta1.FrontendConfig":
		r.verdict(Ignored, value, "not supported")
	}
}
