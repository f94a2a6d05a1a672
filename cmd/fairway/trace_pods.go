package main

import (
	"context"
	"time"

	"fairway/model"
	"fairway/packet"
	"fairway/trace"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// podPorts are what a Pod's containers declare: from the file it is in, else asked of
// the API server, for what is read of all Pods has no containers.
func (cl *cluster) podPorts(ctx context.Context) func(model.Name) ([]trace.PodPort, bool) {
	known := map[model.Name]*corev1.Pod{}
	for _, p := range cl.objects.Pods {
		known[model.Name{Namespace: p.Namespace, Name: p.Name}] = p
	}
	asked := 0
	return func(n model.Name) ([]trace.PodPort, bool) {
		p, ok := known[n]
		if ok && len(p.Spec.Containers) == 0 && cl.clients != nil && asked < mostPods {
			asked++
			p = cl.askPod(ctx, n)
			known[n] = p
		}
		if p == nil || len(p.Spec.Containers) == 0 {
			return nil, false
		}
		return declared(p), true
	}
}

// mostPods are asked for; of a Service's many Pods the first tell enough.
const mostPods = 5

func (cl *cluster) askPod(ctx context.Context, n model.Name) *corev1.Pod {
	ctx, stop := context.WithTimeout(ctx, 5*time.Second)
	defer stop()
	p, err := cl.clients.core.Pods(n.Namespace).Get(ctx, n.Name, metav1.GetOptions{})
	if err != nil {
		return nil
	}
	return p
}

// declared are the ports of the containers, those of sidecars among them.
func declared(p *corev1.Pod) []trace.PodPort {
	var out []trace.PodPort
	add := func(c corev1.Container) {
		for _, d := range c.Ports {
			proto, err := packet.ParseProtocol(string(d.Protocol))
			if d.Protocol == "" {
				proto, err = packet.TCP, nil
			}
			if err == nil {
				out = append(out, trace.PodPort{Name: d.Name, Port: uint16(d.ContainerPort), Proto: proto})
			}
		}
	}
	for _, c := range p.Spec.Containers {
		add(c)
	}
	for _, c := range p.Spec.InitContainers {
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			add(c)
		}
	}
	return out
}
