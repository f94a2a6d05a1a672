package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	wire "github.com/miekg/dns"
)

// server is one of those compared, running.
type server struct {
	name    string
	addr    string
	port    int
	cmd     *exec.Cmd
	argv    []string
	log     string
	exited  chan struct{}
	spoiled error
}

// stage holds the servers of one size of cluster.
type stage struct {
	bin, dir string
	cluster  *cluster
	servers  []*server
}

// start starts each server and waits until it answers.
func (st *stage) start(ctx context.Context, names []string) error {
	for i, name := range names {
		s := &server{name: name, addr: fmt.Sprintf("127.0.53.%d", 100+i)}
		var err error
		if s.port, err = freePort(s.addr); err != nil {
			return err
		}
		dir := filepath.Join(st.dir, name)
		if err := os.Mkdir(dir, 0o755); err != nil {
			return err
		}
		argv, err := st.command(s, dir)
		if err != nil {
			return err
		}
		if err := s.run(argv, filepath.Join(dir, "log")); err != nil {
			return err
		}
		st.servers = append(st.servers, s)
		began := time.Now()
		if err := s.ready(ctx, fmt.Sprintf("svc-%06d.bench.svc.cluster.local.", st.cluster.n-1)); err != nil {
			return err
		}
		fmt.Fprintf(os.Stderr, "%s answers after %.1f s, %.0f MB resident\n", name, time.Since(began).Seconds(), s.rss())
	}
	return nil
}

func (st *stage) stop() {
	for _, s := range st.servers {
		_ = s.cmd.Process.Signal(syscall.SIGTERM)
	}
	for _, s := range st.servers {
		select {
		case <-s.exited:
		case <-time.After(10 * time.Second):
			_ = s.cmd.Process.Kill()
			<-s.exited
		}
	}
}

// command writes a server's configuration and tells how to start it.
func (st *stage) command(s *server, dir string) ([]string, error) {
	switch s.name {
	case "fairway":
		return st.fairway(s, dir)
	case "coredns", "coredns-cache":
		return st.coredns(s, dir)
	case "nsd":
		return st.nsd(s, dir)
	case "knot":
		return st.knot(s, dir)
	}
	return nil, fmt.Errorf("no server %q", s.name)
}

func (st *stage) fairway(s *server, dir string) ([]string, error) {
	ports, err := freePorts(2)
	if err != nil {
		return nil, err
	}
	config := fmt.Sprintf("proxy:\n  metricsBindAddress: 127.0.0.1:%d\n  healthzBindAddress: 127.0.0.1:%d\n  profiling: true\ndns:\n  listen: [\"%s:%d\"]\n  upstreams: [\"127.0.53.99:53\"]\n",
		ports[0], ports[1], s.addr, s.port)
	kubeconfig := fmt.Sprintf("apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: %s}}]\ncontexts: [{name: c, context: {cluster: c, user: u}}]\nusers: [{name: u, user: {}}]\ncurrent-context: c\n", st.cluster.url)
	if err := errors.Join(write(dir, "config.yaml", config), write(dir, "kubeconfig", kubeconfig)); err != nil {
		return nil, err
	}
	return []string{filepath.Join(st.bin, "fairway"), "run", "--roles", "dns", "--node", "node1",
		"--config", filepath.Join(dir, "config.yaml"), "--kubeconfig", filepath.Join(dir, "kubeconfig")}, nil
}

// coredns is configured as kubeadm does, but for the addresses it listens on and its
// upstream, which is never asked.
func (st *stage) coredns(s *server, dir string) ([]string, error) {
	ports, err := freePorts(3)
	if err != nil {
		return nil, err
	}
	cache := "cache 30 {\n        disable success cluster.local\n        disable denial cluster.local\n    }"
	if s.name == "coredns-cache" {
		cache = "cache 30"
	}
	corefile := fmt.Sprintf(`.:%d {
    bind %s
    errors
    health 127.0.0.1:%d {
        lameduck 0s
    }
    ready 127.0.0.1:%d
    kubernetes cluster.local in-addr.arpa ip6.arpa {
        endpoint %s
        pods insecure
        fallthrough in-addr.arpa ip6.arpa
        ttl 30
    }
    prometheus 127.0.0.1:%d
    forward . 127.0.53.99 {
        max_concurrent 1000
    }
    %s
    reload
    loadbalance
}
`, s.port, s.addr, ports[0], ports[1], st.cluster.url, ports[2], cache)
	if err := write(dir, "Corefile", corefile); err != nil {
		return nil, err
	}
	return []string{filepath.Join(st.bin, "bench-coredns"), "-conf", filepath.Join(dir, "Corefile")}, nil
}

// zones splits what Fairway prints into one file per zone.
func (st *stage) zones(dir string) error {
	var forward, reverse strings.Builder
	for line := range strings.Lines(st.cluster.zone()) {
		owner, _, _ := strings.Cut(line, " ")
		switch {
		case strings.HasSuffix(owner, "cluster.local."):
			forward.WriteString(line)
		case strings.HasSuffix(owner, "in-addr.arpa."):
			reverse.WriteString(line)
		}
	}
	reverse.WriteString("in-addr.arpa. 30 IN NS ns.dns.cluster.local.\n")
	return errors.Join(write(dir, "cluster.local", forward.String()), write(dir, "in-addr.arpa", reverse.String()))
}

// nsd is told to limit nobody and to add nothing to answers that the others do not.
func (st *stage) nsd(s *server, dir string) ([]string, error) {
	if err := st.zones(dir); err != nil {
		return nil, err
	}
	conf := fmt.Sprintf("server:\n  server-count: 1\n  ip-address: %s@%d\n  username: \"\"\n  chroot: \"\"\n  zonesdir: %q\n  pidfile: %q\n  xfrdfile: \"\"\n  zonelistfile: %q\n  database: \"\"\n  reuseport: yes\n  minimal-responses: yes\n  rrl-ratelimit: 0\n  rrl-whitelist-ratelimit: 0\nremote-control:\n  control-enable: no\n",
		s.addr, s.port, dir, filepath.Join(dir, "pid"), filepath.Join(dir, "list"))
	for _, z := range []string{"cluster.local", "in-addr.arpa"} {
		conf += fmt.Sprintf("zone:\n  name: %s\n  zonefile: %s\n", z, z)
	}
	if err := write(dir, "nsd.conf", conf); err != nil {
		return nil, err
	}
	return []string{"/usr/sbin/nsd", "-d", "-c", filepath.Join(dir, "nsd.conf")}, nil
}

func (st *stage) knot(s *server, dir string) ([]string, error) {
	if err := st.zones(dir); err != nil {
		return nil, err
	}
	conf := fmt.Sprintf("server:\n  rundir: %q\n  listen: %s@%d\n  udp-workers: 1\n  tcp-workers: 1\n  background-workers: 1\ndatabase:\n  storage: %q\ntemplate:\n  - id: default\n    storage: %q\n    zonefile-load: whole\n    journal-content: none\n    semantic-checks: off\nzone:\n  - domain: cluster.local\n    file: cluster.local\n  - domain: in-addr.arpa\n    file: in-addr.arpa\n",
		dir, s.addr, s.port, dir, dir)
	if err := write(dir, "knot.conf", conf); err != nil {
		return nil, err
	}
	return []string{"/usr/sbin/knotd", "-c", filepath.Join(dir, "knot.conf")}, nil
}

func write(dir, name, text string) error {
	return os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644)
}

func (s *server) run(argv []string, log string) error {
	f, err := os.Create(log)
	if err != nil {
		return err
	}
	defer f.Close()
	s.argv, s.log, s.cmd = argv, log, exec.Command(argv[0], argv[1:]...)
	s.exited = make(chan struct{})
	s.cmd.Stdout, s.cmd.Stderr = f, f
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := s.cmd.Start(); err != nil {
		return fmt.Errorf("%s: %w", s.name, err)
	}
	go func(cmd *exec.Cmd, exited chan struct{}) {
		s.spoiled = cmd.Wait()
		close(exited)
	}(s.cmd, s.exited)
	return nil
}

// ready waits for an answer with a record to name, for up to five minutes.
func (s *server) ready(ctx context.Context, name string) error {
	for end := time.Now().Add(5 * time.Minute); time.Now().Before(end); {
		select {
		case <-s.exited:
			text, _ := os.ReadFile(s.log)
			return fmt.Errorf("%s ended: %v\n%s", s.name, s.spoiled, text)
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
		if m, err := s.query(name, wire.TypeA); err == nil && len(m.Answer) > 0 {
			return nil
		}
	}
	text, _ := os.ReadFile(s.log)
	return fmt.Errorf("%s does not answer\n%s", s.name, text)
}

func (s *server) query(name string, t uint16) (*wire.Msg, error) {
	q := new(wire.Msg)
	q.SetQuestion(name, t)
	c := wire.Client{Timeout: time.Second}
	m, _, err := c.Exchange(q, net.JoinHostPort(s.addr, strconv.Itoa(s.port)))
	return m, err
}

// freePort finds a port free for UDP and TCP on an address.
func freePort(addr string) (int, error) {
	for range 20 {
		l, err := net.Listen("tcp", addr+":0")
		if err != nil {
			return 0, err
		}
		port := l.Addr().(*net.TCPAddr).Port
		l.Close()
		if pc, err := net.ListenPacket("udp", net.JoinHostPort(addr, strconv.Itoa(port))); err == nil {
			pc.Close()
			return port, nil
		}
	}
	return 0, fmt.Errorf("no free port on %s", addr)
}

func freePorts(n int) ([]int, error) {
	var out []int
	for range n {
		p, err := freePort("127.0.0.1")
		if err != nil {
			return nil, err
		}
		out = append(out, p)
	}
	return out, nil
}
