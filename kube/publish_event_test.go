package kube

import (
	"strings"
	"testing"
	"unicode/utf8"

	"fairway/model"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// TestEventLimits: whatever length and letters, an event is one the API server takes.
func TestEventLimits(t *testing.T) {
	p := &Publisher{Node: "n"}
	for _, name := range []string{"a", strings.Repeat("a", 253), strings.Repeat("abc.", 60) + "a", strings.Repeat("a", 235) + "." + strings.Repeat("b", 17)} {
		for pad := range 4 {
			pr := model.Problem{Object: model.Ref{Kind: "Service", Name: model.Name{Namespace: "ns", Name: name}},
				Reason: "R", Message: strings.Repeat("x", pad) + strings.Repeat("é€", 400)}
			e := p.event(pr, metav1.Now())
			if len(e.Message) > maxEventMessage || !utf8.ValidString(e.Message) {
				t.Errorf("message of %d bytes, valid %v", len(e.Message), utf8.ValidString(e.Message))
			}
			if bad := validation.IsDNS1123Subdomain(e.Name); len(bad) > 0 {
				t.Errorf("name %q: %v", e.Name, bad)
			}
		}
	}
}
