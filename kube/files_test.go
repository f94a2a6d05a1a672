package kube

import (
	"context"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"fairway/model"
)

func service(name string) string {
	return "apiVersion: v1\nkind: Service\nmetadata: {name: " + name + "}\nspec: {clusterIP: 10.96.0.1, ports: [{port: 80}]}\n"
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestFilesShareAndKeep(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "a.yaml"), service("a"))
	write(t, filepath.Join(dir, "b.yaml"), service("b"))
	write(t, filepath.Join(dir, "notes.txt"), "not: read")
	f := &Files{Paths: []string{dir}}
	first, problems, err := f.Read()
	if err != nil || len(problems) > 0 || len(first.Services) != 2 {
		t.Fatalf("%v %v %v", first.Services, problems, err)
	}
	write(t, filepath.Join(dir, "b.yaml"), service("b")+"---\n"+service("c"))
	second, _, _ := f.Read()
	if second.Services[0] != first.Services[0] || len(second.Services) != 3 {
		t.Fatal("the unchanged file gave other objects, or the new document was not read")
	}
	write(t, filepath.Join(dir, "b.yaml"), "half: a: docu")
	third, problems, _ := f.Read()
	if len(third.Services) != 3 || len(problems) == 0 {
		t.Fatalf("a half-written file lost objects: %d Services, problems %v", len(third.Services), problems)
	}
	os.Remove(filepath.Join(dir, "b.yaml"))
	if fourth, _, _ := f.Read(); len(fourth.Services) != 1 {
		t.Fatalf("a removed file left objects: %d Services", len(fourth.Services))
	}
}

func TestFilesWatch(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "a.yaml"), service("a"))
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	seen := make(chan int, 100)
	go (&Files{Paths: []string{dir}}).Watch(ctx, func(o model.Objects, _ []model.Problem) { seen <- len(o.Services) })
	expect := func(want int) {
		t.Helper()
		deadline := time.After(10 * time.Second)
		for {
			select {
			case n := <-seen:
				if n == want {
					return
				}
			case <-deadline:
				t.Fatalf("never saw %d Services", want)
			}
		}
	}
	expect(1)
	write(t, filepath.Join(dir, "b.yaml"), service("b"))
	expect(2)
	os.Mkdir(filepath.Join(dir, "sub"), 0o755)
	time.Sleep(300 * time.Millisecond)
	write(t, filepath.Join(dir, "sub", "c.yaml"), service("c"))
	expect(3)
	os.Remove(filepath.Join(dir, "a.yaml"))
	expect(2)
}

// TestFilesOddEntries: a FIFO, a directory and a dangling link named like manifests are
// told and stop nothing; a file that can be read again is a Problem no more.
func TestFilesOddEntries(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "a.yaml"), service("a"))
	if err := syscall.Mkfifo(filepath.Join(dir, "fifo.yaml"), 0o644); err != nil {
		t.Fatal(err)
	}
	os.Mkdir(filepath.Join(dir, "dir.yaml"), 0o755)
	write(t, filepath.Join(dir, "dir.yaml", "b.yaml"), service("b"))
	target := filepath.Join(t.TempDir(), "target")
	write(t, target, service("c"))
	os.Symlink(target, filepath.Join(dir, "c.yaml"))
	f := &Files{Paths: []string{dir}}
	read := func(services, problems int) {
		t.Helper()
		o, p, err := f.Read()
		if err != nil || len(o.Services) != services || len(p) != problems {
			t.Fatalf("%d Services, problems %v %v, want %d and %d", len(o.Services), p, err, services, problems)
		}
	}
	read(3, 1) // the FIFO
	os.Rename(target, target+"-away")
	read(3, 2) // c as last read
	os.Rename(target+"-away", target)
	read(3, 1)
	os.Remove(filepath.Join(dir, "c.yaml"))
	read(2, 1)
}

// TestFilesThroughLink: the directory may be a link that is swapped whole, as the mount
// of a ConfigMap swaps ..data.
func TestFilesThroughLink(t *testing.T) {
	base := t.TempDir()
	for _, v := range []string{"one", "two"} {
		os.Mkdir(filepath.Join(base, v), 0o755)
		write(t, filepath.Join(base, v, "a.yaml"), service(v))
	}
	link := filepath.Join(base, "now")
	os.Symlink("one", link)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	seen := make(chan string, 100)
	go (&Files{Paths: []string{link}}).Watch(ctx, func(o model.Objects, _ []model.Problem) { //nolint:errcheck // ends with the test
		name := ""
		for _, s := range o.Services {
			name += s.Name
		}
		seen <- name
	})
	expect := func(want string) {
		t.Helper()
		for deadline := time.After(10 * time.Second); ; {
			select {
			case got := <-seen:
				if got == want {
					return
				}
			case <-deadline:
				t.Fatalf("never saw %q", want)
			}
		}
	}
	expect("one")
	os.Symlink("two", link+"-next")
	os.Rename(link+"-next", link)
	expect("two")
}
