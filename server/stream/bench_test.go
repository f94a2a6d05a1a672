package stream

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"
)

// proxyWay is the variable of the environment that makes the test binary a proxy.
const proxyWay = "FAIRWAY_TEST_PROXY"

// TestMain is a proxy of its own when a benchmark asks: what it uses can then be told
// from what its clients and targets use.
func TestMain(m *testing.M) {
	if way := os.Getenv(proxyWay); way != "" {
		proxyProcess(way, os.Getenv(proxyWay+"_TO"))
		return
	}
	os.Exit(m.Run())
}

// proxyProcess serves until its input ends.
func proxyProcess(way, to string) {
	if way == "splice" {
		s := New(Settings{})
		bound, _ := s.Set(Config{[]*Listener{tcpTo(Route{Targets: []netip.AddrPort{netip.MustParseAddrPort(to)}})}})
		fmt.Println(bound["l"])
		_, _ = io.Copy(io.Discard, os.Stdin)
		return
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return
	}
	fmt.Println(l.Addr())
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go copyLoop(c.(*net.TCPConn), to)
		}
	}()
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// copyLoop is what Pipe would be without splice: a buffer of 32 KB each way.
func copyLoop(c *net.TCPConn, to string) {
	defer c.Close()
	up, err := net.Dial("tcp", to)
	if err != nil {
		return
	}
	defer up.Close()
	done := make(chan bool)
	go func() {
		_, _ = io.Copy(plainWriter{c}, plainReader{up})
		_ = c.CloseWrite()
		done <- true
	}()
	_, _ = io.Copy(plainWriter{up}, plainReader{c})
	_ = up.(*net.TCPConn).CloseWrite()
	<-done
}

// startProxy runs one and returns its address and a clock of the CPU it has used.
func startProxy(b *testing.B, way string, to netip.AddrPort) (netip.AddrPort, func() time.Duration) {
	b.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), proxyWay+"="+way, proxyWay+"_TO="+to.String())
	in, _ := cmd.StdinPipe()
	out, _ := cmd.StdoutPipe()
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { in.Close(); _ = cmd.Wait() })
	var addr string
	if _, err := fmt.Fscan(out, &addr); err != nil {
		b.Fatal(err)
	}
	return netip.MustParseAddrPort(addr), func() time.Duration {
		data, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", cmd.Process.Pid))
		_, rest, _ := strings.Cut(string(data), ") ")
		f := strings.Fields(rest) // from field 3 on (proc_pid_stat(5)); ticks of 10 ms
		utime, _ := strconv.Atoi(f[11])
		stime, _ := strconv.Atoi(f[12])
		return time.Duration(utime+stime) * 10 * time.Millisecond
	}
}

// BenchmarkPipe moves bytes from a writer by a proxy process to a reader: spliced,
// copied through buffers, and without a proxy. cpu-s/GB is the proxy's alone.
func BenchmarkPipe(b *testing.B) {
	for _, way := range []string{"splice", "copy", "direct"} {
		b.Run(way, func(b *testing.B) {
			const size = 256 << 20
			to := benchBackend(b, func(c *net.TCPConn) { io.Copy(c, &zeros{left: size}) })
			used := func() time.Duration { return 0 }
			if way != "direct" {
				to, used = startProxy(b, way, to)
			}
			b.SetBytes(size)
			start := used()
			for b.Loop() {
				c, err := net.Dial("tcp", to.String())
				if err != nil {
					b.Fatal(err)
				}
				if n, err := io.Copy(onlyWriter{}, c); n != size {
					b.Fatal(n, err)
				}
				c.Close()
			}
			b.ReportMetric((used()-start).Seconds()/(float64(size)*float64(b.N)/1e9), "cpu-s/GB")
		})
	}
}

// BenchmarkConnect is one connection after the other: connect, one byte each way, close.
// cpu-s/10k is the proxy's alone.
func BenchmarkConnect(b *testing.B) {
	for _, way := range []string{"splice", "copy", "direct"} {
		b.Run(way, func(b *testing.B) {
			to := benchBackend(b, func(c *net.TCPConn) { io.Copy(plainWriter{c}, plainReader{c}) })
			used := func() time.Duration { return 0 }
			if way != "direct" {
				to, used = startProxy(b, way, to)
			}
			start, buf := used(), make([]byte, 1)
			for b.Loop() {
				c, err := net.Dial("tcp", to.String())
				if err != nil {
					b.Fatal(err)
				}
				_, _ = c.Write(buf)
				if _, err := c.Read(buf); err != nil {
					b.Fatal(err)
				}
				c.Close()
			}
			b.ReportMetric((used()-start).Seconds()/float64(b.N)*1e4, "cpu-s/10k")
		})
	}
}

func benchBackend(b *testing.B, serve func(*net.TCPConn)) netip.AddrPort {
	b.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { defer c.Close(); serve(c.(*net.TCPConn)) }()
		}
	}()
	return l.Addr().(*net.TCPAddr).AddrPort()
}

// plainReader and plainWriter hide what io.Copy could splice.
type plainReader struct{ io.Reader }

type plainWriter struct{ io.Writer }
