package main

import (
	"context"
	"testing"
	"time"

	"fairway/kube"
	"fairway/loop"
)

// TestServeGoesOnWhileServersDrain: told to stop, everything but the servers runs until
// they are done.
func TestServeGoesOnWhileServersDrain(t *testing.T) {
	var drained, job time.Time
	d := &daemon{
		files: &kube.Files{Paths: []string{t.TempDir()}}, loop: &loop.Loop{}, local: &kube.Local{},
		servers: []func(context.Context) error{func(ctx context.Context) error {
			<-ctx.Done()
			time.Sleep(100 * time.Millisecond)
			drained = time.Now()
			return nil
		}},
		jobs: []func(context.Context) error{func(ctx context.Context) error {
			<-ctx.Done()
			job = time.Now()
			return nil
		}},
	}
	ctx, stop := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer stop()
	if err := d.serve(ctx); err != nil && ctx.Err() == nil {
		t.Fatal(err)
	}
	if drained.IsZero() || job.Before(drained) {
		t.Errorf("servers drained at %v, the jobs were told to end at %v", drained, job)
	}
}
