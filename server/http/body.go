package http

import (
	"errors"
	"io"
	std "net/http"
	"os"
	"sync"
	"time"
)

var errTooLarge = errors.New("request body over its limit")

// body is a request's body on its way to the endpoint: counted, limited, each read
// under a deadline. The transport may still read when the handler is over, hence the
// lock.
type body struct {
	src     io.ReadCloser
	rc      *std.ResponseController
	limit   int64 // 0 is none
	timeout time.Duration

	mu   sync.Mutex
	read int64
	used bool
	over bool
	err  error
}

func (b *body) Read(p []byte) (int, error) {
	b.mu.Lock()
	b.used = true
	if b.over {
		b.mu.Unlock()
		return 0, std.ErrBodyReadAfterClose
	}
	b.rc.SetReadDeadline(time.Now().Add(b.timeout)) //nolint:errcheck // all our readers can
	b.mu.Unlock()

	n, err := b.src.Read(p)

	b.mu.Lock()
	defer b.mu.Unlock()
	b.read += int64(n)
	if b.limit > 0 && b.read > b.limit {
		n, err = 0, errTooLarge
	}
	if err != nil {
		b.clear()
		b.err = err
	}
	return n, err
}

// clear takes the deadline away: net/http also reads while a handler runs, to learn
// of the client leaving, and would take an old deadline for that.
func (b *body) clear() {
	if !b.over {
		b.rc.SetReadDeadline(time.Time{}) //nolint:errcheck // all our readers can
	}
}

// Close does nothing: the transport closes what it gives up, but the next endpoint may
// still get an untouched body. net/http closes the real one.
func (b *body) Close() error { return nil }

// again is http.Request.GetBody: the transport asks for it when a kept connection
// turned out dead before anything was sent.
func (b *body) again() (io.ReadCloser, error) {
	if b.touched() {
		return nil, errors.New("the body is already on its way")
	}
	return b, nil
}

func (b *body) finish() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.clear()
	b.over = true
}

func (b *body) touched() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used
}

func (b *body) failed() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.err
}

func (b *body) tooLarge() bool { return errors.Is(b.failed(), errTooLarge) }

// broken tells whether the client sent what is no body (a bad chunk).
func (b *body) broken() bool {
	err := b.failed()
	return err != nil && !errors.Is(err, io.EOF)
}

// stalled tells whether the client, not the endpoint, kept us waiting.
func (b *body) stalled() bool { return errors.Is(b.failed(), os.ErrDeadlineExceeded) }

func (b *body) bytes() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.read
}
