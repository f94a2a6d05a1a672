// Package logfile writes container logs in the format the kubelet reads: in come raw bytes of stdout and stderr, out go
// lines "RFC3339Nano stdout|stderr F|P text" (CRI logging, kubernetes/design-proposals-archive
// node/kubelet-cri-logging.md). It never rotates by itself: the kubelet renames the file and asks for Reopen.
package logfile

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// MaxLine is the longest text of one record, in bytes; longer lines are cut into P records.
const MaxLine = 16 * 1024

// Log is one container's log file. It is safe for concurrent use by its streams.
type Log struct {
	path string
	now  func() time.Time

	mu   sync.Mutex
	file *os.File
}

// Open creates the file at once: the kubelet reports an error for a running container without one.
// An empty path gives a Log that drops everything.
func Open(path string) (*Log, error) {
	l := &Log{path: path, now: time.Now}
	if err := l.Reopen(); err != nil {
		return nil, err
	}
	return l, nil
}

// Reopen starts writing to a new file at the same path.
func (l *Log) Reopen() error {
	if l.path == "" {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(l.path), 0o755); err != nil {
		return fmt.Errorf("log %s: %w", l.path, err)
	}
	file, err := os.OpenFile(l.path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o640)
	if err != nil {
		return fmt.Errorf("log %s: %w", l.path, err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file != nil {
		l.file.Close()
	}
	l.file = file
	return nil
}

// Close closes the file; later records are dropped.
func (l *Log) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file == nil {
		return nil
	}
	err := l.file.Close()
	l.file = nil
	return err
}

// Stream returns a writer for "stdout" or "stderr". Closing it writes what is left of an unfinished line.
// It is for one goroutine.
func (l *Log) Stream(name string) io.WriteCloser {
	return &stream{log: l, name: name}
}

type stream struct {
	log  *Log
	name string
	rest []byte
}

func (s *stream) Write(p []byte) (int, error) {
	s.rest = append(s.rest, p...)
	var out bytes.Buffer
	for {
		n := bytes.IndexByte(s.rest, '\n')
		if n < 0 && len(s.rest) < MaxLine {
			break
		}
		if n < 0 || n > MaxLine {
			s.record(&out, 'P', s.rest[:MaxLine])
			s.rest = s.rest[MaxLine:]
			continue
		}
		s.record(&out, 'F', s.rest[:n])
		s.rest = s.rest[n+1:]
	}
	if len(s.rest) == 0 {
		s.rest = nil
	}
	return len(p), s.log.write(out.Bytes())
}

// Close marks an unfinished line as partial: readers then print it without a newline, as the program did.
func (s *stream) Close() error {
	if len(s.rest) == 0 {
		return nil
	}
	var out bytes.Buffer
	s.record(&out, 'P', s.rest)
	s.rest = nil
	return s.log.write(out.Bytes())
}

func (s *stream) record(out *bytes.Buffer, tag byte, text []byte) {
	fmt.Fprintf(out, "%s %s %c %s\n", s.log.now().UTC().Format(time.RFC3339Nano), s.name, tag, text)
}

func (l *Log) write(p []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(p) == 0 || l.file == nil {
		return nil
	}
	_, err := l.file.Write(p)
	return err
}
