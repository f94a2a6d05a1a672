package loop

import (
	"context"

	"fairway/proxy"
)

// Count is what went through one ServicePort.
type Count = proxy.Count

// Counter is a Backend that can tell what went through each ServicePort. It is asked at
// scrape time only, may be asked while Apply runs, and keeps to ctx's deadline (a few
// seconds). ServicePorts it knows nothing of are left out; of two Counts with the same
// Key the sum is meant.
type Counter interface {
	Counters(ctx context.Context) ([]Count, error)
}

// TableCount is how many rules stand in a table of iptables in one family, and how many of
// them the last change wrote.
type TableCount struct {
	Table       string
	IPv6        bool
	Total, Last int
}

// TableCounter is a Backend that keeps tables of iptables. It is asked at scrape time.
type TableCounter interface {
	TableCounts() []TableCount
}
