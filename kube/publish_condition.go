package kube

import (
	"slices"
	"strings"

	"fairway/lb"
	"fairway/model"
)

// ConditionProblem is the type of the Service condition that is True while anything is
// wrong with the Service here; events tell the same once, the condition stays.
const ConditionProblem = conditionPrefix + "Problem"

// WithProblems adds to wants the condition of every Service that has a Problem, and a
// want that takes the condition away from Services that have none any more. Statuses of
// Services that are nobody's here keep everything else as it is.
func WithProblems(wants []lb.Want, snap *model.Snapshot, problems []model.Problem) []lb.Want {
	by := map[model.Name][]model.Problem{}
	for _, p := range problems {
		if p.Object.Kind == "Service" {
			by[p.Object.Name] = append(by[p.Object.Name], p)
		}
	}
	out := slices.Clone(wants)
	for i, w := range out {
		if list := by[w.Service.Name]; len(list) > 0 {
			out[i].Conditions = append(slices.Clone(w.Conditions), problemCondition(list))
			delete(by, w.Service.Name)
		}
	}
	ours := map[model.Name]bool{}
	for _, w := range wants {
		ours[w.Service.Name] = true
	}
	for _, s := range snap.Services {
		list := by[s.Name]
		switch {
		case ours[s.Name]:
		case len(list) > 0:
			out = append(out, lb.Want{Service: s, ConditionsOnly: true, Conditions: []lb.Condition{problemCondition(list)}})
		case slices.Contains(s.Conditions, ConditionProblem):
			out = append(out, lb.Want{Service: s, ConditionsOnly: true})
		}
	}
	return out
}

func problemCondition(list []model.Problem) lb.Condition {
	lines := make([]string, len(list))
	for i, p := range list {
		if lines[i] = p.Message; p.Field != "" {
			lines[i] = p.Field + ": " + p.Message
		}
	}
	slices.Sort(lines)
	return lb.Condition{Type: ConditionProblem, Status: true, Reason: list[0].Reason, Message: strings.Join(lines, "; ")}
}
