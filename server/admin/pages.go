package admin

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/pprof"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// ping is /healthz as components of Kubernetes have it, with its SLI metrics.
type ping struct {
	registry *prometheus.Registry
	now      *prometheus.GaugeVec
	total    *prometheus.CounterVec
}

func newPing(main prometheus.Gatherer) *ping {
	h := &ping{registry: prometheus.NewRegistry(),
		now: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "kubernetes_healthcheck",
			Help: "[STABLE] This metric records the result of a single healthcheck."}, []string{"name", "type"}),
		total: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "kubernetes_healthchecks_total",
			Help: "[STABLE] This metric records the results of all healthcheck."}, []string{"name", "type", "status"})}
	start := prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "process_start_time_seconds",
		Help: "[ALPHA] Start time of the process since unix epoch in seconds."}, func() float64 { return startTime(main) })
	h.registry.MustRegister(h.now, h.total, start)
	return h
}

// startTime is what the process collector of the main registry says.
func startTime(g prometheus.Gatherer) float64 {
	families, _ := g.Gather()
	for _, f := range families {
		if f.GetName() == "process_start_time_seconds" {
			return f.GetMetric()[0].GetGauge().GetValue()
		}
	}
	return 0
}

func (h *ping) add(p *paths) {
	p.get("/healthz", func(w http.ResponseWriter, r *http.Request) {
		h.now.WithLabelValues("ping", "healthz").Set(1)
		h.total.WithLabelValues("ping", "healthz", "success").Inc()
		if _, verbose := r.URL.Query()["verbose"]; verbose {
			plain(w, "[+]ping ok\nhealthz check passed\n")
			return
		}
		plain(w, "ok")
	})
	p.get("/healthz/ping", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "ok") })
	slis := promhttp.HandlerFor(h.registry, promhttp.HandlerOpts{})
	p.get("/metrics/slis", func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodDelete {
			h.now.Reset()
			h.total.Reset()
			io.WriteString(w, "metrics reset\n")
			return
		}
		slis.ServeHTTP(w, r)
	})
}

func profiling(mux *http.ServeMux, verbosity func(uint32)) {
	mux.Handle("/debug/pprof", http.RedirectHandler("/debug/pprof/", http.StatusFound))
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	mux.HandleFunc("/debug/flags/v", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/plain")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		if r.Method != http.MethodPut {
			w.WriteHeader(http.StatusNotAcceptable)
			fmt.Fprintln(w, "unsupported http method")
			return
		}
		body, err := io.ReadAll(io.LimitReader(r.Body, 64))
		if err == nil {
			var n uint64
			if n, err = strconv.ParseUint(string(body), 10, 32); err == nil && verbosity != nil {
				verbosity(uint32(n))
			}
		}
		if err != nil {
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprintln(w, err)
			return
		}
		fmt.Fprintf(w, "successfully set klog.logging.verbosity to %s\n", body)
	})
}

// zHeader begins both pages.
const zHeader = "\nkube-proxy %s\nWarning: This endpoint is not meant to be machine parseable, has no formatting compatibility guarantees and is for debugging purposes only.\n\n"

// wantsObject tells whether the caller asks for an object (as=NAME), not for text.
func wantsObject(r *http.Request, name string) bool {
	return strings.Contains(r.Header.Get("Accept"), "application/json") && strings.Contains(r.Header.Get("Accept"), "as="+name)
}

func object(name string) map[string]any {
	return map[string]any{"kind": name, "apiVersion": "config.k8s.io/v1beta1", "metadata": map[string]string{"name": "kube-proxy"}}
}

// flagz is the command line in force (KEP-4828).
func (m *Metrics) flagz(w http.ResponseWriter, r *http.Request) {
	if wantsObject(r, "Flagz") {
		o := object("Flagz")
		o["flags"] = m.Flags
		writeJSON(w, o)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	fmt.Fprintf(w, zHeader, "flagz")
	for _, name := range slices.Sorted(maps.Keys(m.Flags)) {
		fmt.Fprintf(w, "%s=%s\n", name, m.Flags[name])
	}
}

// Status is what /statusz tells (KEP-4827).
type Status struct {
	Started time.Time
	Version string
	// Emulates is the version of Kubernetes whose proxy this behaves like.
	Emulates string
	Now      func() time.Time
}

func (s *Status) serve(w http.ResponseWriter, r *http.Request, listed []string) {
	var folders []string
	for _, p := range listed {
		folders = append(folders, "/"+strings.SplitN(p, "/", 3)[1])
	}
	folders = slices.Compact(folders)
	up := max(0, int64(s.Now().Sub(s.Started).Seconds()))
	if wantsObject(r, "Statusz") {
		o := object("Statusz")
		o["startTime"], o["uptimeSeconds"] = s.Started.UTC().Format(time.RFC3339), up
		o["goVersion"], o["binaryVersion"], o["emulationVersion"], o["paths"] = runtime.Version(), s.Version, s.Emulates, folders
		writeJSON(w, o)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	fmt.Fprintf(w, zHeader, "statusz")
	fmt.Fprintf(w, "Started: %s\nUp: %d hr %02d min %02d sec\nGo version: %s\nBinary version: %s\nEmulation version: %s\nPaths: %s\n",
		s.Started.Format(time.UnixDate), up/3600, up/60%60, up%60, runtime.Version(), s.Version, s.Emulates, strings.Join(folders, " "))
}
