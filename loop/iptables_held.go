package loop

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"fairway/model"
	"fairway/proxy/iptables"
)

// staleChains is what a write does with the chains that nobody needs any more.
type staleChains bool

const (
	deleteStale staleChains = false
	keepStale   staleChains = true
)

var errNoneStale = errors.New("no chain is to be deleted")

// heldChains is what of a family is empty and should be gone, but the kernel keeps it.
type heldChains struct {
	list []iptables.Held
	// why is what the kernel said when the listing shows no reason.
	why error
}

// note takes over what a Change left, once it is in force. One made without a listing
// knows only which chains came into use again.
func (h *heldChains) note(c *iptables.Change) {
	if !c.Listed {
		used := map[string]bool{}
		for _, g := range c.Groups {
			for _, name := range g.Chains() {
				used[name] = true
			}
		}
		var left []iptables.Held
		for _, one := range h.list {
			if !used[one.Chain] {
				left = append(left, one)
			}
		}
		h.list = left
		return
	}
	// An empty chain has no comment to say whose it was.
	service := map[string]string{}
	for _, one := range h.list {
		service[one.Chain] = one.Service
	}
	h.list = c.Held
	for i := range h.list {
		if one := &h.list[i]; one.Service == "" {
			one.Service = service[one.Chain]
		}
	}
}

// problems says which chains are left and what to do.
func (h *heldChains) problems(node string, v6 bool) []model.Problem {
	tool := "iptables"
	if v6 {
		tool = "ip6tables"
	}
	var out []model.Problem
	for _, one := range h.list {
		whose := ""
		if one.Service != "" {
			whose = " of Service port " + one.Service
		}
		why := fmt.Sprintf("%v; the next audit tries again", h.why)
		if len(one.By) > 0 {
			why = fmt.Sprintf("rules that are not ours jump to it from %s; delete those (%s -t %s -S %s lists them), and the next audit deletes it",
				strings.Join(one.By, ", "), tool, one.Table, one.By[0])
		}
		out = append(out, nodeProblem(node, "ChainInUse",
			fmt.Sprintf("%s chain %s%s is unused and empty, but cannot be deleted: %s", one.Table, one.Chain, whose, why)))
	}
	return out
}

// unexpected is drift less the chains that are held.
func (h *heldChains) unexpected(drift []string) []string {
	return slices.DeleteFunc(drift, func(line string) bool {
		return slices.ContainsFunc(h.list, func(one iptables.Held) bool { return one.Line() == line })
	})
}
