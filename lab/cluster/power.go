package cluster

import (
	"context"
	"fmt"
	"os"
	"slices"
	"time"

	"fairway/lab/state"
	"fairway/lab/topology"
)

// AddNode adds the next node to a running lab and returns its name.
func (l Lab) AddNode(ctx context.Context) (string, error) {
	return l.changeNode(ctx, func(lab *state.Lab) (int, error) {
		n := 1
		for slices.Contains(lab.Nodes, n) {
			n++
		}
		if n > topology.MaxNodes {
			return 0, fmt.Errorf("a lab has at most %d nodes", topology.MaxNodes)
		}
		lab.Nodes = append(lab.Nodes, n)
		return n, l.Dir.Save(*lab)
	})
}

// StartNode powers a node on that StopNode has powered off, or the control
// plane.
func (l Lab) StartNode(ctx context.Context, name string) error {
	if name == state.ProcControlPlane {
		return l.restartControlPlane(ctx)
	}
	_, err := l.changeNode(ctx, func(lab *state.Lab) (int, error) {
		n, err := nodeNumber(*lab, name)
		if err == nil && l.Dir.Process(name).Alive() {
			err = fmt.Errorf("%s runs already", name)
		}
		return n, err
	})
	return err
}

func (l Lab) changeNode(ctx context.Context, choose func(*state.Lab) (int, error)) (string, error) {
	unlock, lab, err := l.open()
	if err != nil {
		return "", err
	}
	defer unlock()
	if err := l.hasControlPlane(); err != nil {
		return "", err
	}
	n, err := choose(&lab)
	if err != nil {
		return "", err
	}
	lan, err := os.Open(l.spacePath("fabric"))
	if err != nil {
		return "", err
	}
	defer lan.Close()
	l.Out.Say("%s starting", topology.NodeName(n))
	if err := l.startNode(lab, lan, n); err != nil {
		return "", err
	}
	if lab.Fairway == "process" {
		// The Services of Fairway itself get one endpoint more.
		if err := l.applyManifests(ctx, lab); err != nil {
			return "", err
		}
	}
	return topology.NodeName(n), l.waitReady(ctx, lab, []int{n})
}

// restartControlPlane starts the control plane on the data that the last one
// has left.
func (l Lab) restartControlPlane(ctx context.Context) error {
	unlock, lab, err := l.open()
	if err != nil {
		return err
	}
	defer unlock()
	if l.hasControlPlane() == nil {
		return fmt.Errorf("%s runs already", state.ProcControlPlane)
	}
	lan, err := os.Open(l.spacePath("fabric"))
	if err != nil {
		return err
	}
	defer lan.Close()
	l.Out.Say("control plane starting")
	if err := l.startControlPlane(lab, lan); err != nil {
		return err
	}
	return l.waitServer(ctx, lab)
}

// StopNode pulls a node's plug: everything on it dies at once, and the cluster
// has to notice by itself. For the control plane it is kill -9 of etcd, API
// server, controller manager and scheduler; etcd's data stays.
func (l Lab) StopNode(name string) error {
	unlock, lab, err := l.open()
	if err != nil {
		return err
	}
	defer unlock()
	if _, err := nodeNumber(lab, name); err != nil && name != state.ProcControlPlane {
		return err
	}
	p := l.Dir.Process(name)
	if !p.Alive() {
		return fmt.Errorf("%s is off already", name)
	}
	if err := p.Kill(); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return p.WaitGone(10 * time.Second)
}

func nodeNumber(lab state.Lab, name string) (int, error) {
	for _, n := range lab.Nodes {
		if topology.NodeName(n) == name {
			return n, nil
		}
	}
	return 0, fmt.Errorf("no node %q in this lab", name)
}
