package main

import (
	"fmt"
	"net/netip"
	"slices"

	"fairway/kernel"
	"fairway/proxy"
	"fairway/proxy/nftables"
	"fairway/proxy/userspace"
)

// elsewhere says that this machine, whose kernel is looked at, has none of the node's
// addresses; empty when it has one, or nothing is known of the node's.
func elsewhere(node string, nodeIPs, local []netip.Addr) string {
	has := func(a netip.Addr) bool { return slices.Contains(local, a) }
	if len(nodeIPs) == 0 || slices.ContainsFunc(nodeIPs, has) {
		return ""
	}
	return fmt.Sprintf("this machine is not node %s: it has none of the addresses %v, and what is compared is its own kernel", node, nodeIPs)
}

func driftUserspace(plan *proxy.Plan) ([]string, error) {
	have, err := kernel.NewNFTablesNamed(0, userspace.TableName).List()
	if err != nil {
		return nil, err
	}
	return userspaceDrift(have, plan), nil
}

// userspaceDrift compares with the rules that lead to the process or, since those it
// leaves behind are as they should be too, with the ones that forward without it.
func userspaceDrift(have *nftables.Program, plan *proxy.Plan) []string {
	running := userspace.OwnTable(nftables.Diff(have, userspace.Compile(nil, plan, true, userspace.Carry{}).Capture()).Lines())
	if len(running) == 0 {
		return nil
	}
	left := userspace.OwnTable(nftables.Diff(have, nftables.Compile(nil, userspace.Handover(plan))).Lines())
	if len(left) == 0 {
		return nil
	}
	return running
}
