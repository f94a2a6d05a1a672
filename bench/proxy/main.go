// Command proxy measures each proxy mode on this kernel, in network namespaces of its
// own: flags come in, a table goes out with the time from changed objects to rules in
// force: at a cold start, for one more endpoint, one more and one less Service, and
// after a restart with the rules in place. It never touches the host's own rules.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"fairway/kernel"
	"fairway/loop"
	"fairway/proxy"
	"fairway/test/netlab"
)

// mode opens a backend on a namespace.
type mode struct {
	name string
	open func(node *netlab.Host) (loop.Backend, error)
}

func modes() []mode {
	iptables := func(v kernel.Variant) func(*netlab.Host) (loop.Backend, error) {
		return func(node *netlab.Host) (loop.Backend, error) {
			b, _, err := loop.OpenIPTables(context.Background(), node.NS(), v, "node1")
			return b, err
		}
	}
	return []mode{
		{"nftables", func(node *netlab.Host) (loop.Backend, error) {
			return loop.NewNFTables(kernel.NewNFTables(node.NS())), nil
		}},
		{"iptables-nft", iptables(kernel.NFTVariant)},
		{"iptables-legacy", iptables(kernel.LegacyVariant)},
		{"userspace", func(node *netlab.Host) (loop.Backend, error) {
			b, _, err := loop.OpenUserspace(node.NS(), node.Do, "node1")
			return b, err
		}},
	}
}

func main() {
	sizes := flag.String("services", "1000,10000", "numbers of Services")
	endpoints := flag.Int("endpoints", 10, "endpoints of each Service")
	only := flag.String("modes", "nftables,iptables-nft,iptables-legacy,userspace", "modes to measure")
	bar := flag.Duration("bar", 0, "fail when a cold start of nftables takes longer")
	flag.Parse()
	if err := netlab.Missing(); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
	fmt.Printf("%s, %d processors, %d endpoints a Service; times from changed objects to rules in force, processor time in brackets\n",
		runtime.Version(), runtime.NumCPU(), *endpoints)
	fmt.Printf("%-16s %8s %18s %18s %18s %18s %18s\n", "mode", "services", "cold start", "+1 endpoint", "+1 Service", "-1 Service", "restart")
	slow := false
	for _, size := range strings.Split(*sizes, ",") {
		n, err := strconv.Atoi(size)
		if err != nil {
			fmt.Fprintln(os.Stderr, "bench: -services:", err)
			os.Exit(1)
		}
		for _, m := range modes() {
			if !strings.Contains(","+*only+",", ","+m.name+",") {
				continue
			}
			r, err := measure(m, n, *endpoints)
			if err != nil {
				fmt.Fprintf(os.Stderr, "bench: %s, %d Services: %v\n", m.name, n, err)
				os.Exit(1)
			}
			fmt.Printf("%-16s %8d %18s %18s %18s %18s %18s\n", m.name, n, r.cold, r.endpoint, r.add, r.remove, r.restart)
			slow = slow || *bar > 0 && m.name == "nftables" && r.cold.total > *bar
		}
	}
	if slow {
		fmt.Fprintf(os.Stderr, "bench: the cold start took longer than %s\n", *bar)
		os.Exit(1)
	}
}

// took is the time of one step, and the processor time of it in this process, its
// children and the kernel on their behalf: on a busy machine only the latter says much.
type took struct{ total, cpu time.Duration }

func (t took) String() string { return fmt.Sprintf("%s (%s)", short(t.total), short(t.cpu)) }

func short(d time.Duration) string {
	switch {
	case d >= time.Second:
		return fmt.Sprintf("%.2fs", d.Seconds())
	case d >= 10*time.Millisecond:
		return fmt.Sprintf("%.0fms", float64(d)/1e6)
	}
	return fmt.Sprintf("%.2fms", float64(d)/1e6)
}

// leaver is a backend that ends with its process.
type leaver interface {
	Leave(ctx context.Context, plan *proxy.Plan) error
}

type result struct{ cold, endpoint, add, remove, restart took }

// measure runs the steps on one mode. A step is done several times and the median told.
func measure(m mode, services, endpoints int) (result, error) {
	lab, err := netlab.New(netlab.Layout{NodeAddrs: nodeIPs()})
	if err != nil {
		return result{}, err
	}
	defer lab.Close()
	b, err := m.open(lab.Node)
	if err != nil {
		return result{}, err
	}
	c := newCluster(services, endpoints)
	var r result
	if r.cold, err = c.apply(b); err != nil {
		return r, err
	}
	for _, step := range []struct {
		change func(i int)
		to     *took
	}{{c.toggleEndpoint, &r.endpoint}, {c.addService, &r.add}, {c.removeService, &r.remove}} {
		if *step.to, err = c.median(b, step.change); err != nil {
			return r, err
		}
	}
	if l, ok := b.(leaver); ok { // its listeners would be in the way of the next ones
		now, cancel := context.WithCancel(context.Background())
		cancel()
		if err := l.Leave(now, c.plan); err != nil {
			return r, err
		}
	}
	fresh, err := m.open(lab.Node)
	if err != nil {
		return r, err
	}
	r.restart, err = c.restart(fresh)
	return r, err
}
