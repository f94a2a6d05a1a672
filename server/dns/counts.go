package dnsserver

import (
	"math/bits"
	"sync/atomic"
	"time"

	"fairway/dns"

	"github.com/prometheus/client_golang/prometheus"
)

// counts are one socket's own counters: sockets share none, and a scrape sums them.
type counts struct {
	tcp, v6  bool
	types    [typeSlots]atomic.Uint64
	rcodes   [rcodeSlots]atomic.Uint64
	do       atomic.Uint64
	duration histogram
	request  histogram
	response histogram
}

// plain counts one query with its reply, but for the time it took.
func (c *counts) plain(q *dns.Query, rcode dns.Rcode, request, response int) {
	c.served(uint16(q.Type), int(rcode), q.DO, request, response)
}

func (c *counts) served(qtype uint16, rcode int, do bool, request, response int) {
	c.types[typeSlot(qtype)].Add(1)
	c.rcodes[min(rcode, rcodeSlots-1)].Add(1)
	if do {
		c.do.Add(1)
	}
	c.request.observe(sizeBucket(request), uint64(request), 1)
	c.response.observe(sizeBucket(response), uint64(response), 1)
}

// took counts how long n queries took, from being read to the reply being sent.
func (c *counts) took(d time.Duration, n int) {
	c.duration.observe(timeBucket(d), uint64(d.Nanoseconds())*uint64(n), n)
}

// histogram has one counter per bucket, the last for everything above.
type histogram struct {
	buckets [17]atomic.Uint64
	sum     atomic.Uint64
}

func (h *histogram) observe(bucket int, sum uint64, n int) {
	h.buckets[bucket].Add(uint64(n))
	h.sum.Add(sum)
}

// timeBounds are 0.25 ms and its doubles, 16 of them.
func timeBounds() []float64 { return prometheus.ExponentialBuckets(0.00025, 2, 16) }

// timeBucket finds the first bound that is not below d.
func timeBucket(d time.Duration) int {
	const least = 250 * time.Microsecond
	if d <= least {
		return 0
	}
	return min(bits.Len64(uint64((d-1)/least)), 16)
}

// sizeBounds are CoreDNS's.
func sizeBounds() []float64 {
	return []float64{0, 100, 200, 300, 400, 511, 1023, 2047, 4095, 8291, 16e3, 32e3, 48e3, 64e3}
}

func sizeBucket(n int) int {
	switch {
	case n <= 0:
		return 0
	case n <= 400:
		return (n + 99) / 100
	}
	for i, b := range [...]int{511, 1023, 2047, 4095, 8291, 16e3, 32e3, 48e3, 64e3} {
		if n <= b {
			return 5 + i
		}
	}
	return 14
}

// sum adds the histograms up into a metric's value; unit is what one of sum is.
func sumHistograms(desc *prometheus.Desc, list []*histogram, bounds []float64, unit float64, labels ...string) prometheus.Metric {
	buckets, total, sum := map[float64]uint64{}, uint64(0), uint64(0)
	for i := range len(bounds) + 1 {
		for _, h := range list {
			total += h.buckets[i].Load()
		}
		if i < len(bounds) {
			buckets[bounds[i]] = total
		}
	}
	for _, h := range list {
		sum += h.sum.Load()
	}
	return prometheus.MustNewConstHistogram(desc, total, float64(sum)*unit, buckets, labels...)
}
