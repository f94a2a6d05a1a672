package http

import (
	"context"
	"io"
	"net"
	std "net/http"
	"sync"
	"time"
)

// upgrades are the connections that left HTTP, which net/http forgets.
type upgrades struct {
	mu   sync.Mutex
	open map[net.Conn]struct{}
	wg   sync.WaitGroup
}

func (u *upgrades) add(c net.Conn) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.open == nil {
		u.open = make(map[net.Conn]struct{})
	}
	u.open[c] = struct{}{}
	u.wg.Add(1)
}

func (u *upgrades) remove(c net.Conn) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.open, c)
	u.wg.Done()
}

// drain waits for them to end, and ends them when ctx does.
func (u *upgrades) drain(ctx context.Context) {
	done := make(chan struct{})
	go func() { u.wg.Wait(); close(done) }()
	select {
	case <-done:
		return
	case <-ctx.Done():
	}
	u.mu.Lock()
	for c := range u.open {
		c.Close()
	}
	u.mu.Unlock()
	<-done
}

// upgrade joins the two connections after a 101 (RFC 9110 section 7.8), WebSocket
// being the usual one.
func (x *exchange) upgrade(resp *std.Response) {
	far, ok := resp.Body.(io.ReadWriteCloser)
	want := upgradeOf(x.r)
	if !ok || want == "" || x.r.ProtoMajor != 1 {
		x.refuse(std.StatusBadGateway, "")
		return
	}
	x.w.Header().Set("Connection", "Upgrade")
	x.w.Header().Set("Upgrade", resp.Header.Get("Upgrade"))
	x.w.WriteHeader(std.StatusSwitchingProtocols)
	near, buffered, err := x.w.rc.Hijack()
	if err != nil {
		panic(std.ErrAbortHandler)
	}
	defer near.Close()
	x.s.upgrades.add(near)
	defer x.s.upgrades.remove(near)
	near.SetDeadline(time.Time{}) //nolint:errcheck // a closed connection says so at the next read
	if err := buffered.Flush(); err != nil {
		return
	}
	x.splice(near, buffered, far)
}

// splice copies both ways until either side ends. The endpoint's connection keeps its
// deadlines, so a tunnel silent from there for the read timeout ends, as in nginx.
func (x *exchange) splice(near net.Conn, buffered io.Reader, far io.ReadWriteCloser) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		io.Copy(far, buffered) //nolint:errcheck // either end closing is the normal end
		far.Close()
	}()
	n, _ := io.Copy(near, far) //nolint:errcheck // as above
	x.try().bytes, x.w.bytes = n, n
	near.Close()
	<-done
}
