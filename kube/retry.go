package kube

import (
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// retry is the pace at which a lost list or watch is tried again. client-go's own goes
// up to a minute between tries, so a node would go on with old endpoints that long
// after the API server is back.
func retry() *wait.Backoff {
	return &wait.Backoff{Duration: 500 * time.Millisecond, Factor: 1.5, Jitter: 0.5, Steps: 100, Cap: 4 * time.Second}
}
