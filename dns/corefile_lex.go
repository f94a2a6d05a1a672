package dns

import (
	"fmt"
	"strings"
)

// A Corefile is server blocks: names, then directives in braces, each of which may
// have a block of its own.
type serverBlock struct {
	keys       []word
	directives []directive
}

type directive struct {
	name  string
	args  []string
	line  int
	block []directive
}

type word struct {
	text   string
	line   int
	quoted bool // braces in quotes are text
}

func (w word) is(brace string) bool { return w.text == brace && !w.quoted }

// lexCorefile splits text into words. A # at the start of a word hides the rest of its
// line; double quotes and backquotes hold words together.
func lexCorefile(text string) []word {
	var out []word
	line := 1
	for i := 0; i < len(text); {
		switch c := text[i]; {
		case c == '\n':
			line++
			i++
		case c == ' ' || c == '\t' || c == '\r':
			i++
		case c == '#':
			for i < len(text) && text[i] != '\n' {
				i++
			}
		case c == '"' || c == '`':
			w, used := quotedWord(text[i:], line)
			out = append(out, w)
			line += strings.Count(text[i:i+used], "\n")
			i += used
		default:
			n := strings.IndexAny(text[i:], " \t\r\n")
			if n < 0 {
				n = len(text) - i
			}
			out = append(out, word{text: text[i : i+n], line: line})
			i += n
		}
	}
	return out
}

// quotedWord reads a word that starts with a quote; a backslash before a double quote
// makes it text. A quote that never closes ends with the file.
func quotedWord(s string, line int) (word, int) {
	var b strings.Builder
	quote := s[0]
	for i := 1; i < len(s); i++ {
		switch {
		case s[i] == quote:
			return word{b.String(), line, true}, i + 1
		case quote == '"' && s[i] == '\\' && i+1 < len(s) && s[i+1] == '"':
			i++
		}
		b.WriteByte(s[i])
	}
	return word{b.String(), line, true}, len(s)
}

// corefileReader reads blocks off a list of words.
type corefileReader struct {
	words   []word
	errs    []error
	imports []directive // outside of any block
}

// restOf takes the other words of a line.
func (r *corefileReader) restOf(line int) []string {
	var out []string
	for len(r.words) > 0 && r.words[0].line == line && !r.words[0].is("{") {
		out = append(out, r.next().text)
	}
	return out
}

func (r *corefileReader) errorf(line int, format string, args ...any) {
	r.errs = append(r.errs, fmt.Errorf("line %d: %s", line, fmt.Sprintf(format, args...)))
}

func readCorefile(text string) ([]serverBlock, []directive, []error) {
	r := &corefileReader{words: lexCorefile(text)}
	var out []serverBlock
	for len(r.words) > 0 {
		var b serverBlock
		for len(r.words) > 0 && !r.words[0].is("{") {
			w := r.next()
			if len(b.keys) == 0 && w.text == "import" && !w.quoted {
				r.imports = append(r.imports, directive{name: w.text, args: r.restOf(w.line), line: w.line})
				continue
			}
			b.keys = append(b.keys, w)
		}
		if len(b.keys) == 0 && len(r.words) == 0 {
			break
		}
		if len(r.words) == 0 {
			r.errorf(b.keys[0].line, "a server block must have its directives in braces")
			break
		}
		open := r.next()
		b.directives = r.directives(open.line, 0)
		if len(b.keys) == 0 {
			r.errorf(open.line, "a server block has no name")
			continue
		}
		out = append(out, b)
	}
	return out, r.imports, r.errs
}

func (r *corefileReader) next() word {
	w := r.words[0]
	r.words = r.words[1:]
	return w
}

// directives reads up to the closing brace: one per line, each maybe with a block.
func (r *corefileReader) directives(opened, depth int) []directive {
	const deepest = 8 // no directive nests further
	var out []directive
	for len(r.words) > 0 {
		w := r.next()
		switch {
		case w.is("}"):
			return out
		case w.is("{"):
			if depth >= deepest {
				r.errorf(w.line, "blocks are nested too deeply")
				r.words = nil
				return out
			}
			block := r.directives(w.line, depth+1)
			if len(out) == 0 {
				r.errorf(w.line, "a block without a directive")
				continue
			}
			out[len(out)-1].block = block
		default:
			out = append(out, r.directive(w))
		}
	}
	r.errorf(opened, "the block is never closed")
	return out
}

// directive reads the rest of w's line.
func (r *corefileReader) directive(w word) directive {
	d := directive{name: w.text, line: w.line}
	for len(r.words) > 0 && r.words[0].line == w.line && !r.words[0].is("{") && !r.words[0].is("}") {
		d.args = append(d.args, r.next().text)
	}
	return d
}
