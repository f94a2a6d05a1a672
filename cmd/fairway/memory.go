package main

import (
	"context"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	// While the cluster is read for the first time most of the heap is there to stay, and
	// every collection finds that out anew; afterwards it is small beside what the node has.
	startPercent, restPercent = 100, 50

	memoryEvery = 5 * time.Second
	// memorySlack is what may lie idle, in bytes, beside an eighth of what is in use.
	memorySlack = 8 << 20
)

// giveBackMemory returns to the kernel what a big piece of work has left: reading the
// whole cluster at the start takes three times what keeping it does, and an idle process
// would hold on to that for minutes. Between such pieces it does nothing.
func (d *daemon) giveBackMemory(ctx context.Context) error {
	debug.SetGCPercent(startPercent)
	tick := time.NewTicker(memoryEvery)
	defer tick.Stop()
	least := uint64(0) // what was resident when last given back
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if d.loop.Plan() == nil {
			continue // in the middle of the first such piece
		}
		if now := residentHeap(); least == 0 || now > least+least/8+memorySlack {
			debug.SetGCPercent(restPercent)
			debug.FreeOSMemory()
			least = residentHeap()
		}
	}
}

// residentHeap is the part of the heap that has pages, in bytes.
func residentHeap() uint64 {
	s := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/memory/classes/heap/unused:bytes"}, {Name: "/memory/classes/heap/free:bytes"}}
	metrics.Read(s)
	sum := uint64(0)
	for _, v := range s {
		sum += v.Value.Uint64()
	}
	return sum
}
