package model

import (
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestPoolContains(t *testing.T) {
	p := Pool{Ranges: []Range{
		{From: netip.MustParseAddr("10.0.0.10"), To: netip.MustParseAddr("10.0.0.12")},
		{From: netip.MustParseAddr("fd00::1"), To: netip.MustParseAddr("fd00::2")},
	}}
	for addr, want := range map[string]bool{
		"10.0.0.9": false, "10.0.0.10": true, "10.0.0.12": true, "10.0.0.13": false,
		"fd00::": false, "fd00::2": true, "fd00::3": false,
	} {
		if got := p.Contains(netip.MustParseAddr(addr)); got != want {
			t.Errorf("Contains(%s) = %v, want %v", addr, got, want)
		}
	}
}

func TestNamespaceLabels(t *testing.T) {
	s, _ := Build(nil, Objects{Namespaces: []*corev1.Namespace{
		{ObjectMeta: metav1.ObjectMeta{Name: "plain"}},
		{ObjectMeta: metav1.ObjectMeta{Name: "shop", Labels: map[string]string{"team": "a"}}},
	}})
	if got := s.NamespaceLabels["shop"]["team"]; got != "a" {
		t.Errorf("label of namespace shop = %q, want a", got)
	}
	if len(s.Namespaces) != 2 {
		t.Errorf("namespaces = %v, want two", s.Namespaces)
	}
}
