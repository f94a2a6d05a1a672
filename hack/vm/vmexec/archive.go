package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// archive writes a cpio archive in the "newc" form the kernel unpacks at boot
// (Documentation/driver-api/early-userspace/buffer-format.rst). The first error is kept
// and returned by close.
type archive struct {
	w    *bufio.Writer
	seen map[string]bool
	ino  int
	err  error
}

// Kinds of entries, with their permissions, as stat(2) has them.
const (
	modeDir  = 0o040755
	modeFile = 0o100755
	modeLink = 0o120777
)

func newArchive(w io.Writer) *archive {
	return &archive{w: bufio.NewWriterSize(w, 1<<20), seen: map[string]bool{}}
}

func (a *archive) close() error {
	a.entry("TRAILER!!!", 0, nil)
	if err := a.w.Flush(); a.err == nil {
		a.err = err
	}
	return a.err
}

func (a *archive) entry(name string, mode int, data []byte) {
	a.ino++
	head := fmt.Sprintf("070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x",
		a.ino, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name)+1, 0)
	a.write([]byte(head + name + "\x00"))
	a.pad(len(head) + len(name) + 1)
	a.write(data)
	a.pad(len(data))
}

func (a *archive) write(b []byte) {
	if _, err := a.w.Write(b); err != nil && a.err == nil {
		a.err = err
	}
}

func (a *archive) pad(n int) { a.write(make([]byte, (4-n%4)%4)) }

// new makes the directories above name and tells whether name is not there yet.
func (a *archive) new(name string) (string, bool) {
	name = strings.Trim(filepath.Clean(name), "/")
	if name == "." || a.seen[name] {
		return name, false
	}
	a.dir(filepath.Dir(name))
	a.seen[name] = true
	return name, true
}

func (a *archive) dir(name string) {
	if name, fresh := a.new(name); fresh {
		a.entry(name, modeDir, nil)
	}
}

func (a *archive) data(name string, data []byte) {
	if name, fresh := a.new(name); fresh {
		a.entry(name, modeFile, data)
	}
}

func (a *archive) link(name, to string) {
	if name, fresh := a.new(name); fresh {
		a.entry(name, modeLink, []byte(to))
	}
}

// file copies a file of the host.
func (a *archive) file(name, from string) {
	data, err := os.ReadFile(from)
	if err != nil {
		if a.err == nil {
			a.err = err
		}
		return
	}
	a.data(name, data)
}

// tree copies the regular files of a directory.
func (a *archive) tree(name, from string) {
	a.dir(name)
	err := filepath.WalkDir(from, func(path string, d os.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			rel, _ := filepath.Rel(from, path)
			a.file(filepath.Join(name, rel), path)
		}
		return err
	})
	if err != nil && a.err == nil {
		a.err = err
	}
}
