package dns_test

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"fairway/dns"
	"fairway/model"
)

// rawQuery is a question on the wire, with an OPT record when size is not 0.
func rawQuery(name string, typ dns.Type, size uint16) []byte {
	b := []byte{1, 2, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0}
	for _, l := range strings.Split(strings.TrimSuffix(name, "."), ".") {
		b = append(append(b, byte(len(l))), l...)
	}
	b = append(b, 0, byte(typ>>8), byte(typ), 0, 1)
	if size > 0 {
		b[11] = 1
		b = append(b, 0, 0, 41, byte(size>>8), byte(size), 0, 0, 0, 0, 0, 0)
	}
	return b
}

func packedNames() []string {
	return []string{
		"svc-00500.bench.svc.cluster.local. A", "svc-00500.bench.svc.cluster.local. AAAA", "svc-00500.bench.svc.cluster.local. SRV",
		"_http._tcp.svc-00500.bench.svc.cluster.local. SRV", "_tcp.svc-00500.bench.svc.cluster.local. SRV",
		"172-16-0-1.svc-00000.bench.svc.cluster.local. A", "gone.bench.svc.cluster.local. A", "bench.svc.cluster.local. A",
		"www.example.com.cluster.local. A", "10-1-2-3.bench.pod.cluster.local. A", "fd00--1.bench.pod.cluster.local. AAAA",
		"1.0.96.10.in-addr.arpa. PTR", "1.0.16.172.in-addr.arpa. PTR", "cluster.local. SOA",
		"big.bench.svc.cluster.local. A", "_http._tcp.big.bench.svc.cluster.local. SRV", "172-31-0-9.big.bench.svc.cluster.local. A",
	}
}

// headlessOf adds a headless Service big of n endpoints.
func headlessOf(o model.Objects, n int) model.Objects {
	svc := o.Services[0].DeepCopy()
	svc.Name, svc.Spec.ClusterIP = "big", "None"
	o.Services = append(slices.Clone(o.Services), svc)
	o.EndpointSlices = append(slices.Clone(o.EndpointSlices), slice("big", 15<<16, n))
	return o
}

func TestPackAllocatesNothing(t *testing.T) {
	snap, _ := model.Build(nil, headlessOf(cluster(1000, 3), 100))
	z, _ := dns.Build(nil, snap, dns.DefaultConfig())
	var q dns.Query
	buf := make([]byte, 0, 65536)
	for _, line := range packedNames() {
		name, typ, _ := strings.Cut(line, " ")
		qt, _ := dns.ParseType(typ)
		raw := rawQuery(name, qt, 1232)
		ok := true
		n := testing.AllocsPerRun(100, func() {
			ok = ok && q.Read(raw) == dns.Plain
			_, _, packed := z.Pack(buf, &q, q.Limit(false), 7)
			ok = ok && packed
		})
		if n != 0 || !ok {
			t.Errorf("%s: %v allocations, packed: %v", line, n, ok)
		}
	}
}

// TestSpin: who asks again and again gets every address first in turn.
func TestSpin(t *testing.T) {
	snap, _ := model.Build(nil, headlessOf(cluster(1, 0), 100))
	z, _ := dns.Build(nil, snap, dns.DefaultConfig())
	var q dns.Query
	q.Read(rawQuery("big.bench.svc.cluster.local.", dns.TypeA, 0))
	first, all := map[string]bool{}, map[string]bool{}
	for spin := range uint32(100) {
		reply, _, _ := z.Pack(nil, &q, q.Limit(false), spin)
		answers := reply[12+len("\x03big\x05bench\x03svc\x07cluster\x05local\x00")+4:]
		first[string(answers[12:16])] = true
		for ; len(answers) >= 16; answers = answers[16:] {
			all[string(answers[12:16])] = true
		}
		if reply[2]&2 == 0 {
			t.Fatal("100 addresses fit into 512 bytes")
		}
	}
	if len(first) != 100 || len(all) != 100 {
		t.Errorf("%d of 100 addresses came first, %d came at all", len(first), len(all))
	}
}

// TestHundredThousand holds the zone of 100,000 Services, asked for every one of them,
// to the memory it may take, and a change of one to milliseconds.
func TestHundredThousand(t *testing.T) {
	if testing.Short() {
		t.Skip("builds 100,000 Services")
	}
	o := cluster(100_000, 2)
	snap, _ := model.Build(nil, o)
	before := heap()
	z, _ := dns.Build(nil, snap, dns.DefaultConfig())
	built := heap() - before
	var q dns.Query
	buf := make([]byte, 0, 4096)
	for i := range 100_000 {
		for _, name := range []string{"svc-%05d.bench.svc.cluster.local.", "_http._tcp.svc-%05d.bench.svc.cluster.local."} {
			q.Read(rawQuery(fmt.Sprintf(name, i), dns.TypeSRV, 0))
			if _, rcode, ok := z.Pack(buf, &q, 512, 0); !ok || rcode != 0 {
				t.Fatal(i, rcode, ok)
			}
		}
	}
	asked := heap() - before
	other := o
	other.EndpointSlices = slices.Clone(o.EndpointSlices)
	other.EndpointSlices[50_000] = slice(o.Services[50_000].Name, 100_000, 3)
	changed, _ := model.Build(snap, other)
	best := time.Hour
	for range 5 {
		start := time.Now()
		next, _ := dns.Build(z, changed, dns.DefaultConfig())
		best = min(best, time.Since(start))
		runtime.KeepAlive(next)
	}
	t.Logf("zone %.1f MB, asked for all %.1f MB, one changed %v", mb(built), mb(asked), best)
	if mb(asked) > 60 || best > 50*time.Millisecond {
		t.Errorf("zone %.1f MB, asked for all %.1f MB, one changed %v", mb(built), mb(asked), best)
	}
	runtime.KeepAlive(snap)
	runtime.KeepAlive(z)
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func mb(n int64) float64 { return float64(n) / 1e6 }

func BenchmarkPack(b *testing.B) {
	snap, _ := model.Build(nil, headlessOf(cluster(10000, 3), 200))
	z, _ := dns.Build(nil, snap, dns.DefaultConfig())
	var q dns.Query
	buf := make([]byte, 0, 65536)
	for _, line := range packedNames() {
		name, typ, _ := strings.Cut(line, " ")
		qt, _ := dns.ParseType(typ)
		raw := rawQuery(name, qt, 4096)
		b.Run(line, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				q.Read(raw)
				z.Pack(buf, &q, q.Limit(false), 1)
			}
		})
	}
}

// BenchmarkFirstQuestion is what a change of a headless Service costs: packing it.
func BenchmarkFirstQuestion(b *testing.B) {
	for _, n := range []int{5, 200, 1000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			snap, _ := model.Build(nil, headlessOf(cluster(1, 0), n))
			var q dns.Query
			q.Read(rawQuery("big.bench.svc.cluster.local.", dns.TypeA, 4096))
			buf := make([]byte, 0, 65536)
			for b.Loop() {
				b.StopTimer()
				z, _ := dns.Build(nil, snap, dns.DefaultConfig())
				b.StartTimer()
				z.Pack(buf, &q, 4096, 0)
			}
		})
	}
}

// TestAskedStaysPacked: a Service that is asked for is packed anew when it changes,
// before a query can come; the new answer is the right one.
func TestAskedStaysPacked(t *testing.T) {
	o := headlessOf(cluster(3, 1), 20)
	snap, _ := model.Build(nil, o)
	z, _ := dns.Build(nil, snap, dns.DefaultConfig())
	var q dns.Query
	q.Read(rawQuery("big.bench.svc.cluster.local.", dns.TypeA, 4096))
	buf := make([]byte, 0, 4096)
	z.Pack(buf, &q, 4096, 0)
	o.EndpointSlices = slices.Clone(o.EndpointSlices)
	o.EndpointSlices[len(o.EndpointSlices)-1] = slice("big", 15<<16, 21)
	snap, _ = model.Build(snap, o)
	z, _ = dns.Build(z, snap, dns.DefaultConfig())
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	reply, _, _ := z.Pack(buf, &q, 4096, 0)
	runtime.ReadMemStats(&after)
	if n, answers := after.Mallocs-before.Mallocs, int(reply[6])<<8|int(reply[7]); n > 10 || answers != 21 {
		t.Errorf("%d allocations for %d answers", n, answers)
	}
}
