package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"fairway/lb"
	"fairway/model"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// conditionPrefix marks the conditions that are ours to remove.
const conditionPrefix = "fairway.io/"

// writeService brings one Service to what is wanted: finalizer on, status, finalizer
// off. Nothing is written (false) when the object is not the one the decision was made
// on: the next pass decides on the new one.
func (p *Publisher) writeService(ctx context.Context, w lb.Want) (bool, error) {
	n := w.Service.Name
	s, err := p.Services.Services(n.Namespace).Get(ctx, n.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("%s: Service: %w", n, err)
	}
	if stale(s, w) {
		return false, nil
	}
	if w.Finalizer == lb.AddFinalizer && !slices.Contains(s.Finalizers, lb.CleanupFinalizer) {
		if s, err = p.setFinalizers(ctx, s, append(slices.Clone(s.Finalizers), lb.CleanupFinalizer)); err != nil {
			return false, err
		}
	}
	if s, err = p.writeServiceStatus(ctx, s, w); err != nil {
		return false, err
	}
	if w.Finalizer == lb.RemoveFinalizer && slices.Contains(s.Finalizers, lb.CleanupFinalizer) {
		rest := slices.DeleteFunc(slices.Clone(s.Finalizers), func(f string) bool { return f == lb.CleanupFinalizer })
		if _, err = p.setFinalizers(ctx, s, rest); err != nil && !apierrors.IsNotFound(err) {
			return false, err
		}
	}
	return true, nil
}

// stale: the Service is another one, or its status is neither what the decision saw
// nor what it wants.
func stale(s *corev1.Service, w lb.Want) bool {
	if string(s.UID) != w.Service.UID || model.ServiceType(s.Spec.Type) != w.Service.Type || (s.DeletionTimestamp != nil) != w.Service.Deleting {
		return true
	}
	var saw []netip.Addr
	for _, in := range w.Service.Ingress {
		if in.IP.IsValid() {
			saw = append(saw, in.IP)
		}
	}
	var have []netip.Addr
	for _, in := range s.Status.LoadBalancer.Ingress {
		if a, err := netip.ParseAddr(in.IP); err == nil {
			have = append(have, a.Unmap())
		}
	}
	return !w.ConditionsOnly && !slices.Equal(have, saw) && !slices.Equal(have, w.Addrs)
}

func (p *Publisher) setFinalizers(ctx context.Context, s *corev1.Service, list []string) (*corev1.Service, error) {
	if list == nil {
		list = []string{}
	}
	out, err := p.patchService(ctx, s, map[string]any{"metadata": map[string]any{"resourceVersion": s.ResourceVersion, "finalizers": list}})
	if err != nil {
		return nil, fmt.Errorf("%s/%s: Service finalizers: %w", s.Namespace, s.Name, err)
	}
	return out, nil
}

func (p *Publisher) writeServiceStatus(ctx context.Context, s *corev1.Service, w lb.Want) (*corev1.Service, error) {
	mode := corev1.LoadBalancerIPModeVIP
	want := []corev1.LoadBalancerIngress{}
	for _, a := range w.Addrs {
		want = append(want, corev1.LoadBalancerIngress{IP: a.String(), IPMode: &mode})
	}
	conditions := mergeConditions(s.Status.Conditions, w.Conditions, metav1.Now())
	status := map[string]any{"loadBalancer": map[string]any{"ingress": want}, "conditions": conditions}
	if w.ConditionsOnly {
		want = s.Status.LoadBalancer.Ingress
		delete(status, "loadBalancer")
	}
	if sameList(s.Status.LoadBalancer.Ingress, want) && sameList(s.Status.Conditions, conditions) {
		return s, nil
	}
	out, err := p.patchService(ctx, s, map[string]any{
		"metadata": map[string]any{"resourceVersion": s.ResourceVersion},
		"status":   status,
	}, "status")
	if err != nil {
		return nil, fmt.Errorf("%s/%s: Service status: %w", s.Namespace, s.Name, err)
	}
	return out, nil
}

func sameList[T any](a, b []T) bool {
	return len(a) == 0 && len(b) == 0 || equality.Semantic.DeepEqual(a, b)
}

// mergeConditions keeps other people's conditions and the transition time of ours that
// did not change.
func mergeConditions(have []metav1.Condition, want []lb.Condition, now metav1.Time) []metav1.Condition {
	out := []metav1.Condition{}
	for _, c := range have {
		if !strings.HasPrefix(c.Type, conditionPrefix) {
			out = append(out, c)
		}
	}
	for _, w := range want {
		c := metav1.Condition{Type: w.Type, Status: metav1.ConditionFalse, Reason: w.Reason, Message: w.Message, LastTransitionTime: now.Rfc3339Copy()}
		if w.Status {
			c.Status = metav1.ConditionTrue
		}
		if c.Reason == "" {
			c.Reason = "Unknown" // the API refuses none
		}
		for _, old := range have {
			if old.Type == c.Type && old.Status == c.Status {
				c.LastTransitionTime = old.LastTransitionTime
			}
		}
		out = append(out, c)
	}
	return out
}

// patchService sends a merge patch that carries the resource version, so that the
// server refuses it when the object changed in between.
func (p *Publisher) patchService(ctx context.Context, s *corev1.Service, patch any, sub ...string) (*corev1.Service, error) {
	data, err := json.Marshal(patch)
	if err != nil {
		return nil, err
	}
	return p.Services.Services(s.Namespace).Patch(ctx, s.Name, types.MergePatchType, data, metav1.PatchOptions{}, sub...)
}

// writeIngress brings the status of one Ingress to what is wanted.
func (p *Publisher) writeIngress(ctx context.Context, w IngressStatus) (bool, error) {
	n := w.Ingress.Name
	client := p.Ingresses.Ingresses(n.Namespace)
	in, err := client.Get(ctx, n.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) || err == nil && string(in.UID) != w.Ingress.UID {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("%s: Ingress: %w", n, err)
	}
	want := []networkingv1.IngressLoadBalancerIngress{}
	for _, a := range w.Addrs {
		want = append(want, networkingv1.IngressLoadBalancerIngress{IP: a.String()})
	}
	for _, h := range w.Hostnames {
		want = append(want, networkingv1.IngressLoadBalancerIngress{Hostname: h})
	}
	if sameList(in.Status.LoadBalancer.Ingress, want) {
		return true, nil
	}
	data, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": in.ResourceVersion},
		"status":   map[string]any{"loadBalancer": map[string]any{"ingress": want}},
	})
	if err != nil {
		return false, err
	}
	if _, err = client.Patch(ctx, n.Name, types.MergePatchType, data, metav1.PatchOptions{}, "status"); err != nil {
		return false, fmt.Errorf("%s: Ingress status: %w", n, err)
	}
	return true, nil
}
