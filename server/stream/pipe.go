package stream

import (
	"context"
	"io"
	"net"
	"sync"
)

// countEvery is how many bytes go by between two counts of a busy connection.
const countEvery = 1 << 20

// Pipe copies between two connections until both directions have ended, and closes
// both. Where one side ends its half, so does the other side's half; where one side
// breaks, the other is reset; when ctx ends both are. The kernel moves the bytes
// (splice(2)) where it can; a slow reader holds up its writer with one pipe's worth. aToB
// and bToA are told the bytes moved as they go.
func Pipe(ctx context.Context, a, b *net.TCPConn, aToB, bToA func(int64)) error {
	cut := sync.OnceFunc(func() { reset(a); reset(b) })
	quit := context.AfterFunc(ctx, cut)
	defer quit()
	back := make(chan error, 1)
	go func() { back <- copyHalf(a, b, bToA, cut) }()
	err := copyHalf(b, a, aToB, cut)
	if e := <-back; err == nil {
		err = e
	}
	_ = a.Close()
	_ = b.Close()
	return err
}

// copyHalf copies src to dst until src ends, and passes the end on.
func copyHalf(dst, src *net.TCPConn, count func(int64), cut func()) error {
	for {
		// A LimitedReader, and nothing else around src: that is what ReadFrom splices.
		n, err := dst.ReadFrom(&io.LimitedReader{R: src, N: countEvery})
		count(n)
		if err != nil {
			cut()
			return err
		}
		if n < countEvery {
			break
		}
	}
	// That dst is no longer there to be told is for the other direction to find out: it
	// may still have the last answer on its way.
	_ = dst.CloseWrite()
	return nil
}

// reset closes a connection so that its peer learns it broke.
func reset(c *net.TCPConn) {
	_ = c.SetLinger(0)
	_ = c.Close()
}
