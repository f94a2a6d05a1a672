package kube

import (
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"fairway/model"

	"github.com/fsnotify/fsnotify"
)

// Files is a directory (or single files) of manifests read as if it were an API server.
// A file that did not change gives the same object pointers again; a file that became
// unreadable keeps what it last gave.
type Files struct {
	Paths []string
	kept  map[string]kept
}

// stdin is what the path - stands for.
const stdin = "/dev/stdin"

type kept struct {
	read     bool // ever
	data     string
	objects  model.Objects
	problems []model.Problem
	// unreadable is why the file cannot be read now; the rest is from when it could.
	unreadable []model.Problem
}

// Read reads every *.yaml, *.yml and *.json below Paths in name order. The error is
// only for a path that does not exist or a directory that cannot be listed.
func (f *Files) Read() (model.Objects, []model.Problem, error) {
	names, problems, err := f.names()
	if err != nil {
		return model.Objects{}, nil, err
	}
	next := make(map[string]kept, len(names))
	var all model.Objects
	for _, name := range names {
		k := f.readOne(name)
		next[name] = k
		Append(&all, k.objects)
		problems = append(append(problems, k.problems...), k.unreadable...)
	}
	f.kept = next
	all, dup := Unique(all)
	return all, append(problems, dup...), nil
}

func (f *Files) readOne(name string) kept {
	old := f.kept[name]
	data, err := readManifest(name)
	if err != nil {
		old.unreadable = []model.Problem{fileProblem(name, err.Error())}
		return old
	}
	old.unreadable = nil
	if old.read && old.data == string(data) {
		return old
	}
	k := kept{read: true, data: string(data)}
	k.objects, k.problems = Decode(filepath.Base(name), data)
	k.problems = append(k.problems, admit(k.objects)...)
	k.keepBroken(old)
	return k
}

// readManifest reads a regular file, or standard input. Anything else somebody calls
// x.yaml is refused before it is opened: a FIFO without a writer would stop all reading.
func readManifest(name string) ([]byte, error) {
	if name == stdin {
		return os.ReadFile(name)
	}
	info, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", name)
	}
	return os.ReadFile(name)
}

// keepBroken takes over what the last reading of a file gave when the new one has an
// unreadable document: an editor's half-written file must not take Services away.
func (k *kept) keepBroken(old kept) {
	if old.data == "" || !slices.ContainsFunc(k.problems, func(p model.Problem) bool { return p.Reason == "UnreadableDocument" }) {
		return
	}
	Append(&k.objects, old.objects)
	k.objects, _ = Unique(k.objects)
}

func fileProblem(name, message string) model.Problem {
	return model.Problem{Object: model.Ref{Kind: "File", Name: model.Name{Name: filepath.Base(name)}}, Reason: "UnreadableFile", Message: message}
}

// names are the manifests' paths; a directory without any, as one that is misspelt and
// happens to be there, is a Problem.
func (f *Files) names() (names []string, empty []model.Problem, err error) {
	for _, p := range f.Paths {
		if p == "-" {
			p = stdin
		}
		info, err := os.Stat(p)
		if err != nil {
			return nil, nil, fmt.Errorf("manifests: %w", err)
		}
		if !info.IsDir() {
			names = append(names, p)
			continue
		}
		before := len(names)
		real := through(p)
		err = filepath.WalkDir(real, func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			if d.IsDir() && path != real && strings.HasPrefix(d.Name(), ".") {
				return fs.SkipDir
			}
			if !d.IsDir() && isManifest(path) {
				names = append(names, path)
			}
			return nil
		})
		if err != nil {
			return nil, nil, fmt.Errorf("manifests: %w", err)
		}
		if len(names) == before {
			empty = append(empty, model.Problem{Object: model.Ref{Kind: "Directory", Name: model.Name{Name: p}}, Reason: "NoManifests",
				Message: "holds no manifest; write files called *.yaml, *.yml or *.json there"})
		}
	}
	slices.Sort(names)
	return slices.Compact(names), empty, nil
}

// through is the directory itself where p is a link to one, which a walk would not enter.
func through(p string) string {
	if real, err := filepath.EvalSymlinks(p); err == nil {
		return real
	}
	return p
}

func isManifest(name string) bool {
	switch filepath.Ext(name) {
	case ".yaml", ".yml", ".json":
		return !strings.HasPrefix(filepath.Base(name), ".")
	}
	return false
}

// Watch reads now and after every change, and hands the result to deliver. It returns
// when ctx ends.
func (f *Files) Watch(ctx context.Context, deliver func(model.Objects, []model.Problem)) error {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watching manifests: %w", err)
	}
	defer w.Close()
	read := func() {
		f.watchAll(w)
		objects, problems, err := f.Read()
		if err != nil {
			slog.Error("manifests not read; the last good state stays in force", "err", err)
			return
		}
		deliver(objects, problems)
	}
	read()
	settle := time.NewTimer(time.Hour)
	// The slow look catches what a notification can miss (a network file system).
	slow := time.NewTicker(30 * time.Second)
	defer slow.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-w.Events:
			settle.Reset(100 * time.Millisecond)
		case err := <-w.Errors:
			slog.Warn("watching manifests", "err", err)
			settle.Reset(100 * time.Millisecond)
		case <-settle.C:
			read()
		case <-slow.C:
			read()
		}
	}
}

func (f *Files) watchAll(w *fsnotify.Watcher) {
	for _, p := range f.Paths {
		if info, err := os.Stat(p); err == nil && info.IsDir() {
			if real := through(p); real != p {
				_ = w.Add(filepath.Dir(p)) // where the link is swapped
				p = real
			}
		}
		filepath.WalkDir(p, func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				err = w.Add(path)
			}
			if err == nil && path == p && !d.IsDir() {
				err = w.Add(filepath.Dir(path))
			}
			if err != nil {
				slog.Warn("watching manifests", "path", path, "err", err)
			}
			return nil
		})
	}
}
