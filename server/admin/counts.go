package admin

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"fairway/proxy"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	// countTime is how long a scrape waits for the kernel's counters.
	countTime = 5 * time.Second
	// countPorts is how many Service ports a scrape tells at most: three series each.
	countPorts = 50000
)

// ServiceCounts is a collector that asks for what went through each Service port when it
// is scraped, and at no other time.
type ServiceCounts struct {
	ask                       func(context.Context) ([]proxy.Count, error)
	connections, bytes, state *prometheus.Desc
}

// NewServiceCounts makes the collector; ask may be slow and is given five seconds.
func NewServiceCounts(ask func(context.Context) ([]proxy.Count, error)) *ServiceCounts {
	labels := []string{"namespace", "service", "port", "protocol"}
	return &ServiceCounts{ask: ask,
		connections: prometheus.NewDesc("fairway_service_connections_total", "Connections (UDP: flows) begun through a Service port on this node.", labels, nil),
		bytes: prometheus.NewDesc("fairway_service_bytes_total", "Bytes through a Service port on this node: in is from clients to endpoints. Only in modes that see every packet.",
			append(labels, "direction"), nil),
		state: prometheus.NewDesc("fairway_service_counters_incomplete", "1 when this scrape lacks Service ports: the kernel did not answer in time, or there are too many.", nil, nil),
	}
}

// Describe is part of prometheus.Collector.
func (s *ServiceCounts) Describe(out chan<- *prometheus.Desc) {
	out <- s.connections
	out <- s.bytes
	out <- s.state
}

// portName is what the families of a Service port have in common.
type portName struct{ namespace, service, port, protocol string }

// Collect is part of prometheus.Collector.
func (s *ServiceCounts) Collect(out chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), countTime)
	defer cancel()
	list, err := s.ask(ctx)
	if err != nil {
		slog.Warn("counters of Services not read", "err", err)
	}
	sums := map[portName]proxy.Count{}
	incomplete := err != nil
	for _, c := range list {
		k := portName{c.Service.Namespace, c.Service.Name, c.PortName, strings.ToUpper(string(c.Proto))}
		sum, known := sums[k]
		if !known && len(sums) >= countPorts {
			incomplete = true
			continue
		}
		sum.Connections += c.Connections
		sum.Measured = sum.Measured || c.Measured
		sum.BytesIn += c.BytesIn
		sum.BytesOut += c.BytesOut
		sums[k] = sum
	}
	for k, c := range sums {
		send := func(d *prometheus.Desc, v uint64, more ...string) {
			out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), append([]string{k.namespace, k.service, k.port, k.protocol}, more...)...)
		}
		send(s.connections, c.Connections)
		if c.Measured {
			send(s.bytes, c.BytesIn, "in")
			send(s.bytes, c.BytesOut, "out")
		}
	}
	value := 0.0
	if incomplete {
		value = 1
	}
	out <- prometheus.MustNewConstMetric(s.state, prometheus.GaugeValue, value)
}

// TableCount is how many rules stand in a table of iptables, and how many of them the last
// change wrote.
type TableCount struct {
	Table       string
	IPv6        bool
	Total, Last int
}

// TableCounts is a collector of kube-proxy's two gauges of iptables rules.
type TableCounts struct {
	ask         func() []TableCount
	total, last *prometheus.Desc
}

// NewTableCounts makes the collector.
func NewTableCounts(ask func() []TableCount) *TableCounts {
	labels := []string{"table", "ip_family"}
	return &TableCounts{ask: ask,
		total: prometheus.NewDesc(syncRules+"iptables_total", "Total number of iptables rules owned by kube-proxy", labels, nil),
		last:  prometheus.NewDesc(syncRules+"iptables_last", "Number of iptables rules written by kube-proxy in last sync", labels, nil),
	}
}

// Describe is part of prometheus.Collector.
func (t *TableCounts) Describe(out chan<- *prometheus.Desc) {
	out <- t.total
	out <- t.last
}

// Collect is part of prometheus.Collector.
func (t *TableCounts) Collect(out chan<- prometheus.Metric) {
	for _, c := range t.ask() {
		out <- prometheus.MustNewConstMetric(t.total, prometheus.GaugeValue, float64(c.Total), c.Table, familyOf(c.IPv6))
		out <- prometheus.MustNewConstMetric(t.last, prometheus.GaugeValue, float64(c.Last), c.Table, familyOf(c.IPv6))
	}
}

// Accounts is a collector of the packets two rules of iptables mode meet, under
// kube-proxy's names.
type Accounts struct {
	ask                func() (invalid, localhost uint64, counted bool, err error)
	invalid, localhost *prometheus.Desc
}

// NewAccounts makes the collector.
func NewAccounts(ask func() (invalid, localhost uint64, counted bool, err error)) *Accounts {
	return &Accounts{ask: ask,
		invalid:   prometheus.NewDesc("kubeproxy_iptables_ct_state_invalid_dropped_packets_total", "packets dropped by iptables to work around conntrack problems", nil, nil),
		localhost: prometheus.NewDesc("kubeproxy_iptables_localhost_nodeports_accepted_packets_total", "Number of packets accepted on nodeports of loopback interface", nil, nil),
	}
}

// Describe is part of prometheus.Collector.
func (a *Accounts) Describe(out chan<- *prometheus.Desc) {
	out <- a.invalid
	out <- a.localhost
}

// Collect is part of prometheus.Collector.
func (a *Accounts) Collect(out chan<- prometheus.Metric) {
	invalid, localhost, counted, err := a.ask()
	if err != nil {
		slog.Warn("nfacct counters not read", "err", err)
	}
	if err != nil || !counted {
		return
	}
	out <- prometheus.MustNewConstMetric(a.invalid, prometheus.CounterValue, float64(invalid))
	out <- prometheus.MustNewConstMetric(a.localhost, prometheus.CounterValue, float64(localhost))
}
