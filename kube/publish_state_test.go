package kube

import (
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"fairway/lb"
	"fairway/model"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestLocalKeepsAddresses(t *testing.T) {
	state := filepath.Join(t.TempDir(), "state", "addresses.json")
	svc := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}
	snap, _ := model.Build(nil, model.Objects{Services: []*corev1.Service{svc}})
	want := netip.MustParseAddr("198.51.100.10")
	l := &Local{State: state, Log: slog.New(slog.DiscardHandler)}
	if err := l.Load(); err != nil {
		t.Fatal(err)
	}
	l.Publish(Report{Services: []lb.Want{{Service: snap.Services[0], Addrs: []netip.Addr{want}}}})
	again := &Local{State: state}
	if err := again.Load(); err != nil {
		t.Fatal(err)
	}
	got := again.Overlay([]*corev1.Service{svc})[0].Status.LoadBalancer.Ingress
	if len(got) != 1 || got[0].IP != want.String() {
		t.Fatalf("after a restart the Service holds %v, want %s", got, want)
	}
	os.WriteFile(state, []byte("{not json"), 0o644)
	if err := (&Local{State: state}).Load(); err == nil {
		t.Fatal("a broken file is read without an error")
	}
}

func FuzzParseState(f *testing.F) {
	f.Add([]byte(`{"shop/web": ["198.51.100.10"]}`))
	f.Add([]byte(`{"x": []}`))
	f.Fuzz(func(t *testing.T, data []byte) { parseState(data) })
}
