package cluster

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"

	"fairway/lab/state"
)

// Ports a lab takes when they are free; a second lab gets others.
const (
	preferAPI   = 6443
	preferHTTP  = 8080
	preferHTTPS = 8443
)

// ParsePorts reads "api=N,http=N,https=N", any of them left out. A port left
// out is 0: chosen.
func ParsePorts(text string) (state.Ports, error) {
	var p state.Ports
	if text == "" {
		return p, nil
	}
	for word := range strings.SplitSeq(text, ",") {
		name, value, _ := strings.Cut(word, "=")
		n, err := strconv.Atoi(value)
		if err != nil || n < 1 || n > 65535 {
			return p, fmt.Errorf("ports: %q: want a name, = and a number from 1 to 65535", word)
		}
		at, ok := map[string]*int{"api": &p.API, "http": &p.HTTP, "https": &p.HTTPS}[name]
		if !ok {
			return p, fmt.Errorf("ports: %q: want api, http or https", name)
		}
		*at = n
	}
	return p, nil
}

// listen opens the lab's loopback ports. A port asked for must be free; a
// preferred one gives way to any that is.
func listen(want state.Ports) (state.Ports, []*os.File, error) {
	got := want
	var files []*os.File
	for _, port := range []struct {
		at     *int
		prefer int
	}{{&got.API, preferAPI}, {&got.HTTP, preferHTTP}, {&got.HTTPS, preferHTTPS}} {
		f, n, err := listenOne(*port.at, port.prefer)
		if err != nil {
			for _, f := range files {
				f.Close()
			}
			return got, nil, err
		}
		*port.at = n
		files = append(files, f)
	}
	return got, files, nil
}

func listenOne(asked, prefer int) (*os.File, int, error) {
	try := asked
	if try == 0 {
		try = prefer
	}
	l, err := net.Listen("tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(try)))
	if asked == 0 && errors.Is(err, syscall.EADDRINUSE) {
		l, err = net.Listen("tcp4", "127.0.0.1:0")
	}
	if err != nil {
		return nil, 0, fmt.Errorf("port %d: %w", try, err)
	}
	defer l.Close()
	tcp, ok := l.(*net.TCPListener)
	if !ok {
		return nil, 0, fmt.Errorf("port %d: not TCP", try)
	}
	f, err := tcp.File()
	if err != nil {
		return nil, 0, fmt.Errorf("port %d: %w", try, err)
	}
	at, ok := l.Addr().(*net.TCPAddr)
	if !ok {
		return nil, 0, fmt.Errorf("port %d: not TCP", try)
	}
	return f, at.Port, nil
}
