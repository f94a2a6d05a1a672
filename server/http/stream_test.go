package http_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	std "net/http"
	"strings"
	"testing"
	"time"
)

// When the endpoint breaks off, the client must not take the rest for the whole.
func TestCutAnswer(t *testing.T) {
	w := newWorld(t, nil)
	w.service("cut", w.pod("10.0.13.1", std.HandlerFunc(func(rw std.ResponseWriter, _ *std.Request) {
		conn, buf, _ := rw.(std.Hijacker).Hijack()
		fmt.Fprint(buf, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n")
		buf.Flush()
		conn.Close()
	})))
	w.route("a.x", "/", "cut")
	w.apply()
	resp, err := w.client().Get("http://a.x/")
	if err != nil {
		return
	}
	defer resp.Body.Close()
	if body, err := io.ReadAll(resp.Body); err == nil {
		t.Errorf("the client took %q for the whole answer", body)
	}
}

func TestStreamAndTrailers(t *testing.T) {
	w := newWorld(t, nil)
	next := make(chan struct{})
	w.service("stream", w.pod("10.0.14.1", std.HandlerFunc(func(rw std.ResponseWriter, _ *std.Request) {
		rw.Header().Set("Trailer", "X-Sum")
		fmt.Fprint(rw, "one")
		rw.(std.Flusher).Flush()
		<-next
		fmt.Fprint(rw, "two")
		rw.Header().Set("X-Sum", "42")
	})))
	w.route("a.x", "/", "stream")
	w.apply()
	resp, err := w.client().Get("http://a.x/")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	first := make([]byte, 3)
	if _, err := io.ReadFull(resp.Body, first); err != nil || string(first) != "one" {
		t.Fatalf("%q %v before the endpoint went on", first, err)
	}
	close(next)
	rest, _ := io.ReadAll(resp.Body)
	if string(rest) != "two" || resp.Trailer.Get("X-Sum") != "42" {
		t.Errorf("%q, trailer %v", rest, resp.Trailer)
	}
}

// webSocket is the part of RFC 6455 a proxy sees: the handshake, then bytes.
func webSocket(rw std.ResponseWriter, r *std.Request) {
	if !strings.EqualFold(r.Header.Get("Upgrade"), "websocket") || r.Header.Get("Sec-Websocket-Key") == "" {
		std.Error(rw, "no handshake: "+r.Header.Get("Upgrade"), 400)
		return
	}
	conn, buf, err := rw.(std.Hijacker).Hijack()
	if err != nil {
		return
	}
	defer conn.Close()
	fmt.Fprint(buf, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: x\r\n\r\n")
	buf.Flush()
	io.Copy(conn, buf) //nolint:errcheck // the client ends it
}

func (w *world) openSocket() (net.Conn, *bufio.Reader, *std.Response) {
	w.t.Helper()
	conn, err := net.Dial("tcp", w.http)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(10 * time.Second)) //nolint:errcheck // the read says
	fmt.Fprint(conn, "GET /ws HTTP/1.1\r\nHost: a.x\r\nUpgrade: websocket\r\nConnection: keep-alive, Upgrade\r\nSec-WebSocket-Key: k\r\nSec-WebSocket-Version: 13\r\n\r\nearly")
	br := bufio.NewReader(conn)
	resp, err := std.ReadResponse(br, &std.Request{Method: "GET"})
	if err != nil {
		w.t.Fatal(err)
	}
	return conn, br, resp
}

func TestWebSocket(t *testing.T) {
	w := newWorld(t, nil)
	w.service("ws", w.pod("10.0.15.1", std.HandlerFunc(webSocket)))
	w.route("a.x", "/", "ws")
	w.apply()
	conn, br, resp := w.openSocket()
	if resp.StatusCode != 101 || resp.Header.Get("Upgrade") != "websocket" || resp.Header.Get("Sec-Websocket-Accept") != "x" {
		t.Fatalf("%d %v", resp.StatusCode, resp.Header)
	}
	fmt.Fprint(conn, " and late")
	got := make([]byte, len("early and late"))
	if _, err := io.ReadFull(br, got); err != nil || string(got) != "early and late" {
		t.Fatalf("%q %v", got, err)
	}
	w.endpoints("ws") // the route changes; the open connection goes on
	w.apply()
	fmt.Fprint(conn, "still")
	if _, err := io.ReadFull(br, got[:5]); err != nil || string(got[:5]) != "still" {
		t.Errorf("%q %v after the table changed", got[:5], err)
	}
	start := time.Now()
	if err := w.stop(); err != nil { // ends it when its time is up
		t.Error(err)
	}
	if took := time.Since(start); took < time.Second || took > 8*time.Second {
		t.Errorf("draining took %s", took)
	}
}
