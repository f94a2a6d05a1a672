package logfile

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func openTest(t *testing.T) (*Log, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "pod", "main", "0.log")
	l, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	l.now = func() time.Time { return time.Date(2024, 1, 2, 3, 4, 5, 600, time.UTC) }
	t.Cleanup(func() { l.Close() })
	return l, path
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestFormat(t *testing.T) {
	l, path := openTest(t)
	if got := read(t, path); got != "" {
		t.Errorf("new log: %q", got)
	}
	out := l.Stream("stdout")
	for _, part := range []string{"one\ntw", "o\n", "\n", "rest"} {
		if _, err := fmt.Fprint(out, part); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := fmt.Fprint(l.Stream("stderr"), "bad\n"); err != nil {
		t.Fatal(err)
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
	const at = "2024-01-02T03:04:05.0000006Z "
	want := at + "stdout F one\n" + at + "stdout F two\n" + at + "stdout F \n" + at + "stderr F bad\n" + at + "stdout P rest\n"
	if got := read(t, path); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

func TestLongLine(t *testing.T) {
	l, path := openTest(t)
	text := strings.Repeat("x", 2*MaxLine+5)
	if _, err := fmt.Fprintln(l.Stream("stdout"), text); err != nil {
		t.Fatal(err)
	}
	var tags, joined string
	for line := range strings.Lines(read(t, path)) {
		fields := strings.SplitN(strings.TrimSuffix(line, "\n"), " ", 4)
		tags += fields[2]
		joined += fields[3]
	}
	if tags != "PPF" || joined != text {
		t.Errorf("tags %q, %d of %d bytes", tags, len(joined), len(text))
	}
}

func TestReopen(t *testing.T) {
	l, path := openTest(t)
	out := l.Stream("stdout")
	fmt.Fprintln(out, "before")
	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}
	if err := l.Reopen(); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintln(out, "after")
	if old, now := read(t, path+".1"), read(t, path); !strings.HasSuffix(old, "before\n") || !strings.HasSuffix(now, "after\n") || strings.Contains(now, "before") {
		t.Errorf("old %q, new %q", old, now)
	}
}
