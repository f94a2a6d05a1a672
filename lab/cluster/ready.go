package cluster

import (
	"context"
	"fmt"
	"strings"
	"time"

	"fairway/lab/probe"
	"fairway/lab/state"
	"fairway/lab/topology"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// How long a start may take before it is called failed; many times what it
// takes on two cores.
const (
	serverLimit = 2 * time.Minute
	nodesLimit  = 2 * time.Minute
	podsLimit   = 2 * time.Minute
)

const (
	fairwayNamespace = "fairway-system"
	fairwayDaemonSet = "fairway"
)

func (l Lab) client() (kubernetes.Interface, error) {
	cfg, err := clientcmd.BuildConfigFromFlags("", l.Dir.Kubeconfig())
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	cfg.Timeout = 5 * time.Second
	cfg.QPS = -1 // we poll our own server; its own fairness is enough
	return kubernetes.NewForConfig(cfg)
}

// waitServer waits for the API server by the road that everybody outside the
// lab takes, so the relay is tried as well.
func (l Lab) waitServer(ctx context.Context, lab state.Lab) error {
	url := fmt.Sprintf("https://127.0.0.1:%d", lab.Ports.API)
	return l.Out.wait(ctx, "the API server", serverLimit, func(ctx context.Context) (string, error) {
		if err := checkAlive(l.Dir, state.ProcFabric, state.ProcControlPlane); err != nil {
			return "", err
		}
		if err := probe.Server(ctx, url); err != nil {
			return err.Error(), nil
		}
		return "", nil
	})
}

// waitReady waits for the given nodes and then for Fairway on them.
func (l Lab) waitReady(ctx context.Context, lab state.Lab, numbers []int) error {
	if len(numbers) == 0 {
		return nil
	}
	client, err := l.client()
	if err != nil {
		return err
	}
	names := make([]string, len(numbers))
	for i, n := range numbers {
		names[i] = topology.NodeName(n)
	}
	err = l.Out.wait(ctx, "the nodes", nodesLimit, func(ctx context.Context) (string, error) {
		if err := checkAlive(l.Dir, names...); err != nil {
			return "", err
		}
		return nodesMissing(ctx, client, names), nil
	})
	if err != nil {
		return err
	}
	l.Out.Say("%s Ready", strings.Join(names, ", "))
	if lab.Fairway != "daemonset" {
		return nil
	}
	err = l.Out.wait(ctx, "Fairway", podsLimit, func(ctx context.Context) (string, error) {
		return fairwayMissing(ctx, client, names), nil
	})
	if err == nil {
		l.Out.Say("Fairway ready on %s", strings.Join(names, ", "))
	}
	return err
}

func nodesMissing(ctx context.Context, client kubernetes.Interface, names []string) string {
	list, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		return err.Error()
	}
	ready := map[string]string{}
	for _, n := range list.Items {
		ready[n.Name] = nodeState(n)
	}
	var missing []string
	for _, name := range names {
		switch state, known := ready[name]; {
		case !known:
			missing = append(missing, name+" has not registered")
		case state != "Ready":
			missing = append(missing, name+" is "+state)
		}
	}
	return strings.Join(missing, ", ")
}

// nodeState is "Ready", or why not.
func nodeState(n v1.Node) string {
	for _, c := range n.Status.Conditions {
		if c.Type != v1.NodeReady {
			continue
		}
		if c.Status == v1.ConditionTrue {
			return "Ready"
		}
		return fmt.Sprintf("not ready (%s: %.120s)", c.Reason, c.Message)
	}
	return "not ready (no status yet)"
}

// fairwayMissing says on which of the nodes no Pod of Fairway is ready, and why
// if the Pod's status tells.
func fairwayMissing(ctx context.Context, client kubernetes.Interface, names []string) string {
	ds, err := client.AppsV1().DaemonSets(fairwayNamespace).Get(ctx, fairwayDaemonSet, metav1.GetOptions{ResourceVersion: "0"})
	if err != nil {
		return err.Error()
	}
	pods, err := client.CoreV1().Pods(fairwayNamespace).List(ctx, metav1.ListOptions{
		ResourceVersion: "0", LabelSelector: metav1.FormatLabelSelector(ds.Spec.Selector)})
	if err != nil {
		return err.Error()
	}
	states := map[string]string{}
	for _, p := range pods.Items {
		if states[p.Spec.NodeName] != "ready" {
			states[p.Spec.NodeName] = podState(p)
		}
	}
	var missing []string
	for _, name := range names {
		switch state, known := states[name]; {
		case !known:
			missing = append(missing, name+" has no Pod yet")
		case state != "ready":
			missing = append(missing, name+": "+state)
		}
	}
	return strings.Join(missing, ", ")
}

// podState is "ready", or why not.
func podState(p v1.Pod) string {
	for _, c := range p.Status.Conditions {
		if c.Type == v1.PodReady && c.Status == v1.ConditionTrue && p.DeletionTimestamp == nil {
			return "ready"
		}
	}
	for _, c := range p.Status.ContainerStatuses {
		if w := c.State.Waiting; w != nil {
			return fmt.Sprintf("%s: %s: %.200s", p.Name, w.Reason, w.Message)
		}
	}
	return p.Name + " is not ready"
}
