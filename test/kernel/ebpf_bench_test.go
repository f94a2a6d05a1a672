package kernel_test

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"fairway/kernel"
	"fairway/loop"
	"fairway/model"
	"fairway/packet"
	"fairway/proxy"
	"fairway/test/netlab"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// manyServices makes n Services of one port with ten endpoints each, all of them the one
// endpoint that there is: at different ports.
func manyServices(n int) model.Objects {
	var o model.Objects
	tcp, port := corev1.ProtocolTCP, int32(8080)
	node := "node2"
	for i := range n {
		name := fmt.Sprintf("svc-%d", i)
		o.Services = append(o.Services, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "bench"},
			Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP, ClusterIP: vip(i), ClusterIPs: []string{vip(i)},
				Ports: []corev1.ServicePort{{Port: 80, Protocol: tcp}}}})
		sl := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "bench",
			Labels: map[string]string{discoveryv1.LabelServiceName: name}}, AddressType: discoveryv1.AddressTypeIPv4,
			Ports: []discoveryv1.EndpointPort{{Port: &port, Protocol: &tcp}}}
		for e := range 10 {
			addr := fmt.Sprintf("10.%d.%d.%d", 128+i/250/250%64, i/250%250, e+1)
			if i == n-1 {
				addr = "10.244.2.7" // the last one is the one that is dialled
			}
			sl.Endpoints = append(sl.Endpoints, discoveryv1.Endpoint{Addresses: []string{addr}, NodeName: &node})
		}
		o.EndpointSlices = append(o.EndpointSlices, sl)
	}
	return o
}

func vip(i int) string { return fmt.Sprintf("10.96.%d.%d", i/250, i%250+1) }

func benchLab(t *testing.T) *netlab.Lab {
	a := netip.MustParseAddr
	lab, err := netlab.New(netlab.Layout{NodeAddrs: []netip.Addr{a("172.30.0.11")}, Clients: []netip.Addr{a("203.0.113.250")},
		Pods: []netlab.Pod{{Addrs: []netip.Addr{a("10.244.1.8")}}}, Remote: []netip.Addr{a("10.244.2.7")}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(lab.Close)
	if err := lab.Serve(packet.TCP, netip.MustParseAddrPort("10.244.2.7:8080")); err != nil {
		t.Fatal(err)
	}
	return lab
}

// dialMany connects n times with blocking calls, and returns how long each took.
func dialMany(lab *netlab.Lab, dst string, n int) (took []time.Duration, err error) {
	to := netip.MustParseAddrPort(dst)
	sa := &unix.SockaddrInet4{Addr: to.Addr().As4(), Port: int(to.Port())}
	err = lab.Pods[0].Do(func() error {
		for range n {
			fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				return err
			}
			_ = unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
			start := time.Now()
			err = unix.Connect(fd, sa)
			took = append(took, time.Since(start))
			unix.Close(fd)
			if err != nil && err != unix.EINTR {
				return fmt.Errorf("connect %s: %w", dst, err)
			}
		}
		return nil
	})
	return took, err
}

// cpu is what this process has used; the wall clock has others' work in it too.
func cpu() time.Duration {
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func p50(list []time.Duration) time.Duration {
	slices.Sort(list)
	return list[len(list)/2]
}

// TestEBPFBench prints, with FAIRWAY_BENCH=1, what loading and connecting cost: the
// figures of the mode in bench/. Rounds of both sides are interleaved, since anything else
// on the machine moves them.
func TestEBPFBench(t *testing.T) {
	if os.Getenv("FAIRWAY_BENCH") == "" {
		t.Skip("a measurement: FAIRWAY_BENCH=1 runs it")
	}
	requireKernel(t)
	direct := benchLab(t)
	for _, size := range []int{1, 10000, 30000} {
		lab := benchLab(t)
		nodes := &ebpfNodes{}
		o := nodes.options(t, lab.Node)
		lab.Pods[0].Cgroup = lab.Node.Cgroup
		b := loop.NewEBPF(kernel.NewEBPF(o))
		objects := manyServices(size)
		cfg := proxy.Config{Node: "node1", NodeIPs: []netip.Addr{netip.MustParseAddr("172.30.0.11")}, RejectUnknownPorts: true}.WithMode(proxy.EBPF)
		runtime.GC()
		start, used := time.Now(), cpu()
		snap, _ := model.Build(nil, objects)
		plan, _ := proxy.New(nil, snap, cfg)
		planned := time.Since(start)
		apply(t, b, plan)
		t.Logf("%6d x 10: objects to kernel %s (build and plan %s), CPU %s", size, time.Since(start).Round(time.Millisecond),
			planned.Round(time.Millisecond), (cpu() - used).Round(time.Millisecond))
		change(t, b, snap, plan, objects, cfg)
		again := loop.NewEBPF(kernel.NewEBPF(o))
		start, used = time.Now(), cpu()
		apply(t, again, plan)
		t.Logf("%6d x 10: a restart takes over in %s, CPU %s", size, time.Since(start).Round(time.Millisecond), (cpu() - used).Round(time.Millisecond))
		compareDials(t, direct, lab, size)
		programCosts(t, func() {
			if _, err := dialMany(lab, vip(size-1)+":80", 3000); err != nil {
				t.Fatal(err)
			}
		})
		if err := again.Cleanup(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
}

// change times one Service more.
func change(t *testing.T, b loop.Backend, snap *model.Snapshot, plan *proxy.Plan, objects model.Objects, cfg proxy.Config) {
	more := manyServices(len(objects.Services) + 1)
	one := objects
	last := len(objects.Services)
	one.Services = append(slices.Clone(objects.Services), more.Services[last])
	one.EndpointSlices = append(slices.Clone(objects.EndpointSlices), more.EndpointSlices[last])
	runtime.GC()
	start, used := time.Now(), cpu()
	snap2, _ := model.Build(snap, one)
	plan2, _ := proxy.New(plan, snap2, cfg)
	planned := time.Since(start)
	apply(t, b, plan2)
	t.Logf("%6d x 10: +1 Service %s (build and plan %s), CPU %s", last, time.Since(start).Round(10*time.Microsecond),
		planned.Round(10*time.Microsecond), (cpu() - used).Round(10*time.Microsecond))
	apply(t, b, plan)
}

// programCosts tells what one run of each program takes on average while f runs; counting
// itself costs some, so f is not what is measured otherwise.
func programCosts(t *testing.T, f func()) {
	t.Helper()
	stop, err := ebpf.EnableStats(uint32(unix.BPF_STATS_RUN_TIME))
	if err != nil {
		t.Fatal(err)
	}
	defer stop.Close()
	before := programRuns(t)
	f()
	for name, now := range programRuns(t) {
		if n := now.count - before[name].count; n > 0 {
			t.Logf("       %s: %d runs, %d ns each", name, n, uint64(now.took-before[name].took)/n)
		}
	}
}

type runs struct {
	count uint64
	took  time.Duration
}

func programRuns(t *testing.T) map[string]runs {
	t.Helper()
	out := map[string]runs{}
	var id ebpf.ProgramID
	for {
		var err error
		if id, err = ebpf.ProgramGetNextID(id); err != nil {
			return out
		}
		p, err := ebpf.NewProgramFromID(id)
		if err != nil {
			continue
		}
		info, err := p.Info()
		if err == nil && strings.HasPrefix(info.Name, "fw_") {
			stats, err := p.Stats()
			if err == nil {
				r := out[info.Name]
				out[info.Name] = runs{r.count + stats.RunCount, r.took + stats.Runtime}
			}
		}
		_ = p.Close()
	}
}

func compareDials(t *testing.T, direct, lab *netlab.Lab, size int) {
	var d, v []time.Duration
	var ratios []float64
	for range 15 {
		a, err := dialMany(direct, "10.244.2.7:8080", 1500)
		if err != nil {
			t.Fatal(err)
		}
		b, err := dialMany(lab, vip(size-1)+":80", 1500)
		if err != nil {
			t.Fatal(err)
		}
		ratios = append(ratios, float64(p50(b))/float64(p50(a)))
		d, v = append(d, a...), append(v, b...)
	}
	slices.Sort(ratios)
	t.Logf("%6d Services: connect p50 %s, direct %s; ratio of rounds: median %.3f [%.2f-%.2f]",
		size, p50(v), p50(d), ratios[len(ratios)/2], ratios[0], ratios[len(ratios)-1])
}
