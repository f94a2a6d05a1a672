package apiserver

import (
	"context"
	"net/http/httptest"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// A real reflector of client-go follows the server in both encodings: what was there,
// what is added, changed and deleted.
func TestReflector(t *testing.T) {
	for _, form := range []string{protobufType, jsonType} {
		t.Run(form, func(t *testing.T) { follow(t, form) })
	}
}

func follow(t *testing.T, form string) {
	s := New()
	put := func(name, ip string) {
		t.Helper()
		if err := s.Put(service(name, ip)); err != nil {
			t.Fatal(err)
		}
	}
	put("a", "10.96.0.1")
	put("b", "10.96.0.2")
	web := httptest.NewServer(s)
	defer web.Close()
	gv := corev1.SchemeGroupVersion
	client, err := rest.RESTClientFor(&rest.Config{Host: web.URL, APIPath: "/api", ContentConfig: rest.ContentConfig{
		GroupVersion: &gv, NegotiatedSerializer: scheme.Codecs.WithoutConversion(), ContentType: form, AcceptContentTypes: form}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	store := cache.NewStore(cache.MetaNamespaceKeyFunc)
	lw := cache.NewListWatchFromClient(client, "services", "", fields.Everything())
	go cache.NewReflectorWithOptions(lw, &corev1.Service{}, store, cache.ReflectorOptions{}).RunWithContext(ctx)

	wait(t, store, map[string]string{"a": "10.96.0.1", "b": "10.96.0.2"})
	put("c", "10.96.0.3")
	put("b", "10.96.0.22")
	if err := s.Delete(service("a", "10.96.0.1")); err != nil {
		t.Fatal(err)
	}
	wait(t, store, map[string]string{"b": "10.96.0.22", "c": "10.96.0.3"})
	if err := s.Delete(service("a", "")); err == nil {
		t.Error("deleting what is not there succeeded")
	}
}

func service(name, ip string) *corev1.Service {
	return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}, Spec: corev1.ServiceSpec{ClusterIP: ip}}
}

func wait(t *testing.T, store cache.Store, want map[string]string) {
	t.Helper()
	got := map[string]string{}
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		clear(got)
		for _, o := range store.List() {
			svc := o.(*corev1.Service)
			got[svc.Name] = svc.Spec.ClusterIP
		}
		same := len(got) == len(want)
		for k, v := range want {
			same = same && got[k] == v
		}
		if same {
			return
		}
	}
	t.Fatalf("the client holds %v, want %v", got, want)
}
