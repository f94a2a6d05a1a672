// Command dns measures DNS servers side by side: a cluster of a given size is made up,
// each server is given it in the way it takes it (Fairway and CoreDNS follow a static
// API, NSD and Knot load the zone file that Fairway prints), dnsperf asks all of them
// the same questions in turn, round after round, and a table with ratios goes out. It
// measures processor time per query first, since on a busy machine that is what stays
// comparable. Everything runs on loopback addresses.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

type options struct {
	bin      string
	services []int
	servers  []string
	loads    []string
	rounds   int
	length   time.Duration
	rate     int
	changing int
	gaps     bool
}

func main() {
	var o options
	sizes, servers, loads := "", "", ""
	flag.StringVar(&o.bin, "bin", "bin", "where fairway and bench-coredns are")
	flag.StringVar(&sizes, "services", "1000", "numbers of Services, with commas")
	flag.StringVar(&servers, "servers", "fairway,coredns,nsd,knot", "whom to ask")
	flag.StringVar(&loads, "loads", "hit,pair,walk,headless,srv,ptr,mixed", "what to ask")
	flag.IntVar(&o.rounds, "rounds", 5, "rounds of each load")
	flag.DurationVar(&o.length, "length", 4*time.Second, "time of one measurement")
	flag.IntVar(&o.rate, "rate", 5000, "queries a second where latency is measured; 0 measures none")
	flag.IntVar(&o.changing, "changing", 0, "endpoints changed a second meanwhile, in the API that Fairway and CoreDNS follow")
	flag.BoolVar(&o.gaps, "gaps", true, "end every server and start it again, with a client that asks every millisecond")
	flag.Parse()
	o.servers, o.loads = strings.Split(servers, ","), strings.Split(loads, ",")
	for _, s := range strings.Split(sizes, ",") {
		n, err := strconv.Atoi(s)
		if err != nil || n < 1 {
			fmt.Fprintf(os.Stderr, "-services %q: want numbers, as 1000,10000\n", sizes)
			os.Exit(2)
		}
		o.services = append(o.services, n)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	for _, n := range o.services {
		if err := measure(ctx, o, n); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}

// measure starts every server on a cluster of n Services and puts the loads to them.
func measure(ctx context.Context, o options, n int) error {
	dir, err := os.MkdirTemp("", "dns-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	c, err := newCluster(n)
	if err != nil {
		return err
	}
	defer c.close()
	st := &stage{bin: o.bin, dir: dir, cluster: c}
	defer st.stop()
	if err := st.start(ctx, o.servers); err != nil {
		return err
	}
	t := &table{services: n}
	for _, load := range o.loads {
		path := filepath.Join(dir, load)
		if err := c.writeLoad(path, load); err != nil {
			return err
		}
		if err := st.agree(path); err != nil {
			return fmt.Errorf("load %s: %w", load, err)
		}
		if err := rounds(ctx, o, st, t, load, path); err != nil {
			return err
		}
	}
	for _, s := range st.servers {
		t.add(result{server: s.name, load: "memory", rss: s.rss(), peak: s.peak()})
	}
	if o.gaps {
		if err := gaps(ctx, st, t); err != nil {
			return err
		}
	}
	fmt.Print(t)
	return nil
}

// rounds asks the servers in turn; the first round only warms them up.
func rounds(ctx context.Context, o options, st *stage, t *table, load, path string) error {
	stop := st.cluster.change(o.changing)
	defer stop()
	for round := range o.rounds + 1 {
		for _, s := range st.servers {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			length := o.length
			if round == 0 {
				length = time.Second
			}
			r, err := s.ask(ctx, path, length, 0)
			if err != nil {
				return err
			}
			if r.load = load; round > 0 {
				t.add(r)
			}
			if o.rate == 0 || round == 0 {
				continue
			}
			if r, err = s.ask(ctx, path, length, o.rate); err != nil {
				return err
			}
			r.load = load
			t.add(r)
		}
	}
	return nil
}
