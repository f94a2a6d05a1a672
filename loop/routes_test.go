package loop

import (
	"context"
	"testing"

	"fairway/ingress"
	"fairway/model"
)

// TestRoutesWaitForSecrets: after a start no table is served before its Secrets are
// there; later ones are served at once.
func TestRoutesWaitForSecrets(t *testing.T) {
	set, complete := 0, false
	r := &Routes{Set: func(*ingress.Table) { set++ }, Follow: func(context.Context, []model.Name) bool { return complete }}
	publish := func(want int) {
		t.Helper()
		r.Publish(context.Background(), &model.Snapshot{}, nil)
		if set != want {
			t.Errorf("%d tables served, want %d", set, want)
		}
	}
	publish(0)
	complete = true
	publish(1)
	complete = false
	publish(2)
}
