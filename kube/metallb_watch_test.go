package kube

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"
)

func poolObject(name, version string, addresses ...any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": metallbVersion, "kind": "IPAddressPool",
		"metadata": map[string]any{"name": name, "namespace": "metallb-system", "resourceVersion": version},
		"spec":     map[string]any{"addresses": addresses},
	}}
}

func TestFollowMetalLB(t *testing.T) {
	gvr := schema.GroupVersionResource{Group: "metallb.io", Version: "v1beta1", Resource: "ipaddresspools"}
	client := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{
		gvr: "IPAddressPoolList", gvr.GroupVersion().WithResource("l2advertisements"): "L2AdvertisementList",
	})
	var installed atomic.Bool
	client.PrependReactor("list", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
		if installed.Load() {
			return false, nil, nil
		}
		return true, nil, apierrors.NewNotFound(schema.GroupResource{Group: "metallb.io", Resource: a.GetResource().Resource}, "")
	})
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	changes := make(chan struct{}, 100)
	m := followMetalLB(ctx, client, newRefusals(time.Hour, func() {}), func() { changes <- struct{}{} })
	wait := func(what string, ok func() bool) {
		t.Helper()
		for start := time.Now(); time.Since(start) < 10*time.Second; time.Sleep(5 * time.Millisecond) {
			if ok() {
				return
			}
		}
		t.Fatal("never:", what)
	}
	wait("known to be absent", func() bool {
		_, pools := m.pools.synced()
		_, ads := m.ads.synced()
		return pools && ads
	})
	installed.Store(true)
	pools := client.Resource(gvr).Namespace("metallb-system")
	if _, err := pools.Create(ctx, poolObject("first", "1", "192.0.2.0/28"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	wait("the pool, after the definition appears", func() bool { p, _, _ := m.objects(); return len(p) == 1 })
	one, _, _ := m.objects()
	if two, _, _ := m.objects(); one[0] != two[0] {
		t.Error("an unchanged pool is another pointer")
	}
	if len(changes) == 0 {
		t.Error("nobody was told")
	}
	if _, err := pools.Update(ctx, poolObject("first", "2", "192.0.2.0/28", "bad"), metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	wait("the Problem of the changed pool", func() bool {
		p, _, problems := m.objects()
		return len(problems) == 1 && problems[0].Reason == "InvalidRange" && len(p) == 1 && p[0] != one[0]
	})
	if err := pools.Delete(ctx, "first", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	wait("the pool is gone", func() bool { p, _, problems := m.objects(); return len(p)+len(problems) == 0 })
}
