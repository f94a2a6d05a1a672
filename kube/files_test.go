package kube

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"fairway/model"
)

func service(name string) string {
	return "apiVersion: v1\nkind: Service\nmetadata: {name: " + name + "}\nspec: {ports: [{port: 80}]}\n"
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
