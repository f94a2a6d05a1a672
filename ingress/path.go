package ingress

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
)

// ErrBadPath is why a request path is answered 400.
var ErrBadPath = errors.New("bad path")

const hexDigits = "0123456789ABCDEF"

// Path is a request path in the three forms that must not disagree.
type Path struct {
	// Text is forwarded: RFC 3986 section 6.2.2 normal form, so unreserved characters
	// are decoded, escapes upper case, dot segments gone and, by default, runs of
	// slashes merged.
	Text string
	// Match is what rules are compared with: Text with every character a path may
	// hold decoded, so that %21 and ! are one; encoded slashes stay encoded.
	Match string
	// Alt is how a laxer reader sees Match (encoded slashes and backslashes decoded,
	// ;parameters cut off, slashes merged); empty when that is no different. Both must lead to the
	// same route.
	Alt string
}

// ParsePath normalises the path of a request target (without query). It refuses what
// no honest client sends and back ends read differently: NUL, control characters,
// backslashes, broken escapes, dot segments that climb above the root or hide behind
// encoded slashes or parameters.
func ParsePath(raw string, keepSlashes bool) (Path, error) {
	if raw == "" || raw[0] != '/' {
		return Path{}, fmt.Errorf("%w: %q does not start with /", ErrBadPath, raw)
	}
	if clean(raw) {
		return Path{Text: raw, Match: raw}, nil
	}
	text, err := normalEscapes(raw)
	if err != nil {
		return Path{}, err
	}
	if text, err = removeDots(text, keepSlashes); err != nil {
		return Path{}, err
	}
	p := Path{Text: text, Match: decodePchars(text)}
	if p.Alt, err = laxView(p.Match); err != nil {
		return Path{}, err
	}
	return p, nil
}

// clean tells at a glance that a path, as nearly all are, is in every normal form.
func clean(p string) bool {
	for i := 0; i < len(p); i++ {
		c := p[i]
		if !isPchar(c) && c != '/' || c == ';' {
			return false
		}
		if i > 0 && p[i-1] == '/' && (c == '.' || c == '/') {
			return false
		}
	}
	return true
}

func isUnreserved(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("-._~", c) >= 0
}

// isPchar is RFC 3986 pchar without escapes.
func isPchar(c byte) bool { return isUnreserved(c) || strings.IndexByte("!$&'()*+,;=:@", c) >= 0 }

func unhex(c byte) int {
	switch {
	case c >= '0' && c <= '9':
		return int(c - '0')
	case c >= 'a' && c <= 'f':
		return int(c-'a') + 10
	case c >= 'A' && c <= 'F':
		return int(c-'A') + 10
	}
	return -1
}

// escape reads %XX at the start of s.
func escape(s string) (byte, bool) {
	if len(s) < 3 {
		return 0, false
	}
	h, l := unhex(s[1]), unhex(s[2])
	return byte(h<<4 | l), h >= 0 && l >= 0
}

// normalEscapes decodes escaped unreserved characters, encodes what may not stand in
// a path, and writes the other escapes in upper case.
func normalEscapes(raw string) (string, error) {
	var b strings.Builder
	b.Grow(len(raw) + 8)
	put := func(c byte) { b.WriteByte('%'); b.WriteByte(hexDigits[c>>4]); b.WriteByte(hexDigits[c&15]) }
	for i := 0; i < len(raw); i++ {
		c := raw[i]
		switch {
		case c == '%':
			v, ok := escape(raw[i:])
			if !ok || v == 0 {
				return "", fmt.Errorf("%w: broken or NUL escape in %q", ErrBadPath, raw)
			}
			if isUnreserved(v) {
				b.WriteByte(v)
			} else {
				put(v)
			}
			i += 2
		case c <= ' ', c == 0x7f, c == '\\', c == '#', c == '?':
			return "", fmt.Errorf("%w: character %q", ErrBadPath, c)
		case c == '/' || isPchar(c):
			b.WriteByte(c)
		default:
			put(c)
		}
	}
	return b.String(), nil
}

// removeDots is RFC 3986 section 5.2.4, but climbing above the root is an error.
func removeDots(p string, keepSlashes bool) (string, error) {
	var out []string
	segments := strings.Split(p[1:], "/")
	for i, s := range segments {
		last := i == len(segments)-1
		switch {
		case s == "..":
			if len(out) == 0 {
				return "", fmt.Errorf("%w: %q climbs above the root", ErrBadPath, p)
			}
			out = out[:len(out)-1]
		case s != "." && (s != "" || keepSlashes || last):
			out = append(out, s)
			continue
		}
		if last {
			out = append(out, "") // /a/.. is the directory /
		}
	}
	return "/" + strings.Join(out, "/"), nil
}

// decodePchars decodes the escapes left that a path may hold literally.
func decodePchars(p string) string {
	if !strings.Contains(p, "%") {
		return p
	}
	var b strings.Builder
	for i := 0; i < len(p); i++ {
		if v, ok := escape(p[i:]); p[i] == '%' && ok && isPchar(v) {
			b.WriteByte(v)
			i += 2
			continue
		}
		b.WriteByte(p[i])
	}
	return b.String()
}

// ambiguous tells whether readers may cut a path differently.
func ambiguous(p string) bool {
	return strings.Contains(p, ";") || strings.Contains(p, "//") || strings.Contains(p, "%2F") || strings.Contains(p, "%5C")
}

func laxView(match string) (string, error) {
	if !ambiguous(match) {
		return "", nil
	}
	lax := strings.NewReplacer("%2F", "/", "%5C", "/").Replace(match)
	segments := strings.Split(lax, "/")
	for i, s := range segments {
		s, _, _ = strings.Cut(s, ";")
		if s == "." || s == ".." {
			return "", fmt.Errorf("%w: hidden dot segment in %q", ErrBadPath, match)
		}
		segments[i] = s
	}
	return removeDots(strings.Join(segments, "/"), false)
}

// NormalHost brings a Host field or SNI name to the form of the table: lower case, no
// port, no trailing dot. False is a name no host can have, answered 400.
func NormalHost(h string) (string, bool) {
	if strings.HasPrefix(h, "[") { // an IPv6 literal
		end := strings.IndexByte(h, ']')
		if end < 0 || !validPort(h[end+1:]) {
			return "", false
		}
		a, err := netip.ParseAddr(h[1:end])
		return "[" + a.String() + "]", err == nil && a.Zone() == ""
	}
	if i := strings.IndexByte(h, ':'); i >= 0 {
		if !validPort(h[i:]) {
			return "", false
		}
		h = h[:i]
	}
	h = strings.ToLower(strings.TrimSuffix(h, "."))
	if len(h) > 253 {
		return "", false
	}
	for i := 0; i < len(h); i++ {
		c := h[i]
		if !(c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '-' || c == '_' || c == '.' && i > 0 && h[i-1] != '.') {
			return "", false
		}
	}
	return h, true
}

func validPort(s string) bool {
	if s == "" {
		return true
	}
	if s[0] != ':' || len(s) > 6 {
		return false
	}
	for _, c := range s[1:] {
		if c < '0' || c > '9' {
			return false
		}
	}
	return true
}
