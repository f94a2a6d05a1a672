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
