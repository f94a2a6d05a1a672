// Package house holds the tests of the house itself: which package may import what. It
// reads source files and nothing else.
package house

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

const root = "../.."

// pure packages take values and give values and Problems: they must not reach for the
// world, and must not read the clock.
var pure = []string{"model", "packet", "proxy", "dns", "lb", "ingress"}

var forbidden = []string{"os", "os/exec", "os/signal", "net", "net/http", "syscall", "log", "log/slog",
	"golang.org/x/sys", "k8s.io/client-go", "k8s.io/klog", "github.com/google/nftables", "github.com/vishvananda/netlink"}

// floor numbers grow downwards; imports may only go to an equal floor's subpackage or
// to a greater number.
var floor = map[string]int{
	"cmd": 0, "loop": 1, "trace": 1, "kube": 2, "kernel": 2, "announce": 2, "server": 2,
	"ingress": 3, "dns": 3, "lb": 3, "proxy/": 3, "proxy": 4, "model": 5, "packet": 5,
}

func TestLine(t *testing.T) {
	seen := 0
	eachFile(t, func(path, pkg string, f *ast.File) {
		room := strings.SplitN(pkg, "/", 2)[0]
		if !contains(pure, room) {
			return
		}
		seen++
		for _, imp := range f.Imports {
			name, _ := strconv.Unquote(imp.Path.Value)
			for _, bad := range forbidden {
				if name == bad || strings.HasPrefix(name, bad+"/") && strings.Contains(bad, ".") {
					t.Errorf("%s is above the line and imports %s", path, name)
				}
			}
		}
		ast.Inspect(f, func(n ast.Node) bool {
			if sel, ok := n.(*ast.SelectorExpr); ok {
				if id, ok := sel.X.(*ast.Ident); ok && id.Name == "time" && (sel.Sel.Name == "Now" || sel.Sel.Name == "Sleep" || sel.Sel.Name == "After") {
					t.Errorf("%s is above the line and calls time.%s", path, sel.Sel.Name)
				}
			}
			return true
		})
	})
	if seen < 10 {
		t.Fatalf("only %d pure files found: the test looks in the wrong place", seen)
	}
}

func TestFloors(t *testing.T) {
	eachFile(t, func(path, pkg string, f *ast.File) {
		from, ok := floorOf(pkg)
		if !ok {
			return
		}
		for _, imp := range f.Imports {
			name, _ := strconv.Unquote(imp.Path.Value)
			target, ours := strings.CutPrefix(name, "fairway/")
			if !ours {
				continue
			}
			to, known := floorOf(target)
			switch {
			case !known:
				t.Errorf("%s imports %s, which is on no floor of the house", path, name)
			case to < from:
				t.Errorf("%s (floor %d) imports %s (floor %d): imports run downwards only", path, from, name, to)
			}
		}
	})
}

func floorOf(pkg string) (int, bool) {
	if strings.HasPrefix(pkg, "proxy/") {
		return floor["proxy/"], true
	}
	n, ok := floor[strings.SplitN(pkg, "/", 2)[0]]
	return n, ok
}

func eachFile(t *testing.T, do func(path, pkg string, f *ast.File)) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(root, path)
		if d.IsDir() {
			if rel == "lab" || rel == "test" || rel == "bench" || rel == "bin" || strings.HasPrefix(d.Name(), ".") && rel != "." || d.Name() == "testdata" {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		do(rel, filepath.ToSlash(filepath.Dir(rel)), f)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func contains(list []string, s string) bool {
	for _, v := range list {
		if v == s {
			return true
		}
	}
	return false
}
