package ingress

import (
	"fmt"
	"regexp"
	"regexp/syntax"
	"strings"
)

// maxRegexCost bounds one regular expression. Its size grows with what it repeats, up to
// megabytes and milliseconds for forty bytes of text, on every node and for everybody;
// what people write costs some hundreds.
const maxRegexCost = 5000

// compiled is a path read as a regular expression: as it matches, the literal text it
// begins with, or why it is refused.
type compiled struct {
	re   *regexp.Regexp
	sure int
	err  error
}

type compiler func(path string) compiled

// regex compiles a path once for all Tables it stays in.
func (b *builder) regex(path string) compiled {
	c, known := b.table.regexes[path]
	if !known {
		if c, known = b.prev.regexes[path]; !known {
			c = compileRegex(path)
		}
		b.table.regexes[path] = c
	}
	return c
}

// compileRegex compiles as ingress-nginx has nginx do: from the start of the path, any
// case, open at the end.
func compileRegex(path string) compiled {
	tree, err := syntax.Parse(path, syntax.Perl)
	if err != nil {
		return compiled{err: err}
	}
	if n := regexCost(tree, maxRegexCost); n > maxRegexCost {
		return compiled{err: fmt.Errorf("it is too large when its repetitions are written out; repeat less, or use * and +")}
	}
	literal, err := regexp.Compile(path)
	if err != nil {
		return compiled{err: err}
	}
	sure, _ := literal.LiteralPrefix()
	re, err := regexp.Compile("(?i)^(?:" + path + ")")
	return compiled{re: re, sure: len(sure), err: err}
}

// regexCost is about the number of instructions and ranges of the compiled expression;
// once above limit it stops counting.
func regexCost(t *syntax.Regexp, limit int) int {
	n := 1 + len(t.Rune)
	for _, sub := range t.Sub {
		if n += regexCost(sub, limit); n > limit {
			return n
		}
	}
	if t.Op == syntax.OpRepeat {
		n *= max(t.Min, t.Max, 1)
	}
	return n
}

// readRegex fills in the path. What cannot be compiled is refused for all it might
// match, since another route could serve it less protected.
func (r *Route) readRegex(path string, meta int, compile compiler) string {
	c := compile(path)
	if c.err != nil {
		if meta < 0 { // only dots: as plain text
			meta = strings.IndexByte(path, '.')
		} else if strings.IndexByte("*?{", path[meta]) >= 0 && meta > 1 {
			meta-- // the character before may be absent
		}
		if strings.Contains(path, "|") {
			meta = 1 // what comes after it may begin in any way
		}
		r.Path, r.Kind, r.rank = path[:meta], Plain, meta
		r.Refused = "its path is not a regular expression of RE2 syntax, or too large a one"
		return fmt.Sprintf("%q: %v; requests that start with %q get 503", path, c.err, r.Path)
	}
	r.Path, r.Kind, r.rank, r.re = path, Regex, max(1, c.sure), c.re
	return ""
}
