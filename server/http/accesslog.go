package http

import (
	"io"
	"strconv"
	"strings"
	"sync"
	"time"
)

// accessLog writes one line per request in ingress-nginx's default format
// (log-format-upstream), so that what reads those logs keeps reading.
type accessLog struct {
	mu  sync.Mutex
	out io.Writer
	buf []byte
}

func newAccessLog(out io.Writer) *accessLog { return &accessLog{out: out} }

func (l *accessLog) write(x *exchange, took time.Duration) {
	if l.out == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.buf = x.line(l.buf[:0], took)
	l.out.Write(l.buf) //nolint:errcheck // there is nowhere to report a log that fails
}

// line is $remote_addr - $remote_user [$time_local] "$request" $status
// $body_bytes_sent "$http_referer" "$http_user_agent" $request_length $request_time
// [$proxy_upstream_name] [$proxy_alternative_upstream_name] $upstream_addr
// $upstream_response_length $upstream_response_time $upstream_status $req_id.
func (x *exchange) line(b []byte, took time.Duration) []byte {
	r := x.r
	user, _, _ := r.BasicAuth()
	b = append(b, x.peer.client.String()...)
	b = append(b, " - "...)
	b = field(b, user)
	b = append(b, " ["...)
	b = x.start.AppendFormat(b, "02/Jan/2006:15:04:05 -0700")
	b = append(b, `] "`...)
	b = escaped(b, r.Method+" "+r.RequestURI+" "+r.Proto)
	b = append(b, `" `...)
	b = strconv.AppendInt(b, int64(x.w.status), 10)
	b = append(b, ' ')
	b = strconv.AppendInt(b, x.w.bytes, 10)
	b = append(b, ` "`...)
	b = field(b, r.Referer())
	b = append(b, `" "`...)
	b = field(b, r.UserAgent())
	b = append(b, `" `...)
	b = strconv.AppendInt(b, x.requestLength(), 10)
	b = append(b, ' ')
	b = seconds(b, took)
	b = append(b, " ["...)
	b = append(b, x.upstreamName()...)
	b = append(b, "] [] "...)
	b = x.upstream(b)
	b = append(b, ' ')
	b = append(b, x.id...)
	return append(b, '\n')
}

// upstream writes the four fields that list every endpoint tried.
func (x *exchange) upstream(b []byte) []byte {
	if len(x.tries) == 0 {
		return append(b, "- - - -"...)
	}
	list := func(one func(b []byte, a *attempt) []byte) {
		for i, a := range x.tries {
			if i > 0 {
				b = append(b, ", "...)
			}
			b = one(b, a)
		}
	}
	list(func(b []byte, a *attempt) []byte { return append(b, a.addr.String()...) })
	b = append(b, ' ')
	list(func(b []byte, a *attempt) []byte { return strconv.AppendInt(b, a.bytes, 10) })
	b = append(b, ' ')
	list(func(b []byte, a *attempt) []byte { return seconds(b, a.total) })
	b = append(b, ' ')
	list(func(b []byte, a *attempt) []byte { return strconv.AppendInt(b, int64(a.status), 10) })
	return b
}

func (x *exchange) upstreamName() string {
	if x.route == nil {
		return "upstream-default-backend"
	}
	return x.route.Backend.Name
}

// requestLength is the request's size on an HTTP/1 wire; over HTTP/2 an estimate.
func (x *exchange) requestLength() int64 {
	r := x.r
	n := len(r.Method) + len(r.RequestURI) + len(r.Proto) + 4 + len("Host: \r\n") + len(r.Host) + 2
	for k, vs := range r.Header {
		for _, v := range vs {
			n += len(k) + len(v) + 4
		}
	}
	if x.body != nil {
		return int64(n) + x.body.bytes()
	}
	return int64(n)
}

func seconds(b []byte, d time.Duration) []byte {
	return strconv.AppendFloat(b, d.Seconds(), 'f', 3, 64)
}

func field(b []byte, s string) []byte {
	if s == "" {
		return append(b, '-')
	}
	return escaped(b, s)
}

// escaped writes what a client sent so that it stays inside its quotes and its line,
// as nginx does.
func escaped(b []byte, s string) []byte {
	const hex = "0123456789ABCDEF"
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c < ' ' || c >= 0x7f || strings.IndexByte(`"\`, c) >= 0 {
			b = append(b, '\\', 'x', hex[c>>4], hex[c&15])
			continue
		}
		b = append(b, c)
	}
	return b
}
