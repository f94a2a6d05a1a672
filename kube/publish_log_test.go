package kube

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"fairway/model"
)

// TestProblemsLoggedOnce: a Problem that had its line before there was a publisher gets no
// second one, and a line has no empty field.
func TestProblemsLoggedOnce(t *testing.T) {
	var text bytes.Buffer
	log := slog.New(slog.NewTextHandler(&text, nil))
	node := model.Ref{Kind: "Node", Name: model.Name{Name: "node1"}}
	early, late := model.Problem{Object: node, Reason: "Early", Message: "early"}, model.Problem{Object: node, Field: "spec.x", Reason: "Late", Message: "late"}
	l := &Local{Log: log}
	LogProblem(log, early)
	l.Logged([]model.Problem{early})
	l.Publish(Report{Node: []model.Problem{early, late}})
	l.Publish(Report{Node: []model.Problem{early, late}})
	lines := strings.Split(strings.TrimSpace(text.String()), "\n")
	if len(lines) != 2 || !strings.Contains(lines[0], "early") || strings.Contains(lines[0], "field=") || !strings.Contains(lines[1], "field=spec.x") {
		t.Fatalf("%q", lines)
	}
	l.Publish(Report{})
	if !strings.Contains(text.String(), "resolved") {
		t.Error("the end of the early one is not told")
	}
}
