package stream

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"testing"
)

// moved is how many bytes this process has read and written by read(2), write(2) and
// their like (proc_pid_io(5)); what is spliced is not among them.
func moved(tb testing.TB) (in, out int64) {
	tb.Helper()
	data, err := os.ReadFile("/proc/self/io")
	if err != nil {
		tb.Skip(err)
	}
	for _, line := range bytes.Split(data, []byte("\n")) {
		fmt.Sscanf(string(line), "rchar: %d", &in)
		fmt.Sscanf(string(line), "wchar: %d", &out)
	}
	return in, out
}

// TestSplice: the kernel moves the bytes. What the two ends in this process read and
// write is counted; the copies between them would double it.
func TestSplice(t *testing.T) {
	const size = 64 << 20
	s := serverFor(t, Settings{})
	to := listen(t, s, tcpTo(Route{Targets: []netip.AddrPort{backend(t, func(c *net.TCPConn) { io.Copy(c, &zeros{left: size}) })}}))
	in, out := moved(t)
	c := dial(t, to)
	n, err := io.Copy(onlyWriter{}, c)
	if n != size || err != nil {
		t.Fatalf("%d bytes, %v", n, err)
	}
	in2, out2 := moved(t)
	if in2-in < size || in2-in > size*3/2 || out2-out > size*3/2 {
		t.Errorf("for %d MB the process read %d MB and wrote %d MB", size>>20, (in2-in)>>20, (out2-out)>>20)
	}
}

// zeros is so many zero bytes.
type zeros struct{ left int }

func (z *zeros) Read(b []byte) (int, error) {
	if z.left == 0 {
		return 0, io.EOF
	}
	n := min(len(b), z.left)
	z.left -= n
	return n, nil
}

// onlyWriter keeps io.Copy from finding a shorter way.
type onlyWriter struct{}

func (onlyWriter) Write(b []byte) (int, error) { return len(b), nil }
