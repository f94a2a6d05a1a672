package matrix

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"fairway/kernel"
	"fairway/loop"
	"fairway/model"
	"fairway/proxy/userspace"
	"fairway/server/stream"
	"fairway/test/netlab"

	"golang.org/x/sys/unix"
)

// all makes Problems of opening a mode an error: here everything is served.
func all(problems []model.Problem, err error) error {
	if err == nil && len(problems) > 0 {
		return fmt.Errorf("%v", problems)
	}
	return err
}

func openIPTables(v kernel.Variant) func(context.Context, *netlab.Lab) (loop.Backend, func(), error) {
	return func(ctx context.Context, lab *netlab.Lab) (loop.Backend, func(), error) {
		b, problems, err := loop.OpenIPTables(ctx, lab.Node.NS(), v, nodeName)
		return b, func() {}, all(problems, err)
	}
}

func openUserspace(_ context.Context, lab *netlab.Lab) (loop.Backend, func(), error) {
	server := stream.New(stream.Settings{Enter: lab.Node.Do})
	rules := loop.NewNFTables(kernel.NewNFTablesNamed(lab.Node.NS(), userspace.TableName))
	stop := func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel() // at once
		server.Shutdown(ctx)
	}
	return loop.NewUserspace(server, rules), stop, nil
}

// openEBPF gives the lab a file system for the node's maps, and a cgroup for all
// processes on the node, its pods' included.
func openEBPF(_ context.Context, lab *netlab.Lab) (b loop.Backend, stop func(), err error) {
	if err := kernel.ProbeEBPF(); err != nil {
		return nil, nil, err
	}
	dir, err := os.MkdirTemp("", "fairway-bpf-")
	if err != nil {
		return nil, nil, err
	}
	if err := unix.Mount("bpf", dir, "bpf", 0, ""); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("mount a file system of type bpf: %w", err), os.Remove(dir))
	}
	unmount := func() {
		_ = unix.Unmount(dir, unix.MNT_DETACH)
		_ = os.Remove(dir)
	}
	cgroup, err := netlab.NewCgroup()
	if err != nil {
		unmount()
		return nil, nil, err
	}
	lab.Node.Cgroup = cgroup
	for _, pod := range lab.Pods {
		pod.Cgroup = cgroup
	}
	backend := loop.NewEBPF(kernel.NewEBPF(kernel.EBPFOptions{NetNS: lab.Node.NS(), Dir: filepath.Join(dir, "node"), Cgroup: cgroup.Dir, Flows: 16384}))
	return backend, func() {
		_ = backend.Cleanup(context.Background())
		_ = cgroup.Close()
		unmount()
	}, nil
}
