// Command webd stands in for a web server image on a machine without one. In comes HTTP on port 80, or on the ports that
// a mounted nginx configuration names; out go four lines of text that say which server answered what. It reads of such a
// configuration only "listen" and a text after "return 200"; it serves no files.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

func main() {
	conf := flag.String("conf", "/etc/nginx/conf.d", "directory of nginx configurations, which need not exist")
	body := flag.String("body", "", "answer with this text instead")
	// What an image's own arguments would be ("-g", "daemon off;") is accepted and means nothing.
	flag.String("g", "", "ignored")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGQUIT, syscall.SIGINT)
	defer stop()
	if err := run(ctx, *conf, *body); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, conf, body string) error {
	site, err := readSite(conf)
	if err != nil {
		return err
	}
	if body != "" {
		site.text = body
	}
	hostname, err := os.Hostname()
	if err != nil {
		return err
	}
	web := &http.Server{
		Handler:           &answerer{site: site, hostname: hostname, now: time.Now},
		ReadHeaderTimeout: time.Minute,
	}
	failed := make(chan error, len(site.listen))
	for _, address := range site.listen {
		listener, err := net.Listen("tcp", address)
		if err != nil {
			return fmt.Errorf("listen on %s: %w", address, err)
		}
		go func() { failed <- web.Serve(listener) }()
	}
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	grace, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := web.Shutdown(grace); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return nil
}

// answerer writes the site's text with nginx's variables filled in.
type answerer struct {
	site     site
	hostname string
	now      func() time.Time
}

func (a *answerer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	kind := "text/plain; charset=utf-8"
	if strings.HasPrefix(a.site.text, "<") {
		kind = "text/html; charset=utf-8"
	}
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Server", "webd")
	text := a.fill(r)
	if _, err := w.Write([]byte(text)); err != nil {
		return // the client has left
	}
	client, _, _ := net.SplitHostPort(r.RemoteAddr)
	fmt.Printf("%s - - [%s] \"%s %s %s\" 200 %d\n",
		client, a.now().Format("02/Jan/2006:15:04:05 -0700"), r.Method, r.RequestURI, r.Proto, len(text))
}

// fill replaces longer names first, so that $host does not eat the start of $hostname.
func (a *answerer) fill(r *http.Request) string {
	var addr, port string
	if local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr); ok {
		addr, port, _ = net.SplitHostPort(local.String())
	}
	client, clientPort, _ := net.SplitHostPort(r.RemoteAddr)
	host := r.Host
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return strings.NewReplacer(
		"$request_method", r.Method, "$request_uri", r.RequestURI, "$server_addr", addr, "$server_port", port,
		"$remote_addr", client, "$remote_port", clientPort, "$time_iso8601", a.now().Format(time.RFC3339),
		"$hostname", a.hostname, "$http_host", r.Host, "$host", host, "$uri", r.URL.Path, "$scheme", "http",
	).Replace(a.site.text)
}
