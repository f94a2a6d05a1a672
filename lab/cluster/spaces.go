package cluster

import (
	"fmt"
	"os"
	"strings"

	"fairway/lab/netspace"
	"fairway/lab/state"
	"fairway/lab/topology"
)

// spacePath is where the network namespace of fabric, client or router can be
// opened: as an open file of the process that holds it.
func (l Lab) spacePath(name string) string {
	fd := map[string]int{"fabric": fdLAN, "client": fdClient, "router": fdRouter}[name]
	return fmt.Sprintf("/proc/%d/fd/%d", l.Dir.Process(state.ProcFabric).PID, fd)
}

// Exec runs argv in one of the lab's places: on a node, with all it has of its
// own, or in the network namespace of client, router or fabric. It returns the
// command's exit code; for the latter three only if the command could not be
// started, as the calling process becomes the command.
func (l Lab) Exec(place string, argv []string) (int, error) {
	lab, err := l.Dir.Load()
	if err != nil {
		return 0, err
	}
	// Set in the process itself: the command is looked up by the same PATH.
	for name, value := range map[string]string{
		"KUBECONFIG": l.Dir.InsideKubeconfig(),
		"PATH":       l.Dir.Path("bin") + ":" + os.Getenv("PATH"),
	} {
		if err := os.Setenv(name, value); err != nil {
			return 0, err
		}
	}
	env := os.Environ()
	switch place {
	case "fabric", "client", "router":
		if !l.Dir.Process(state.ProcFabric).Alive() {
			return 0, fmt.Errorf("lab %s is not up", l.Dir.Name)
		}
		return 0, netspace.Exec(l.spacePath(place), argv, env)
	}
	if _, err := nodeNumber(lab, place); err != nil {
		return 0, fmt.Errorf("no place %q in lab %s; there are %s", place, l.Dir.Name, strings.Join(l.places(lab), ", "))
	}
	p := l.Dir.Process(place)
	if !p.Alive() {
		return 0, fmt.Errorf("%s is off", place)
	}
	return netspace.Run(p.PID, argv, env)
}

func (l Lab) places(lab state.Lab) []string {
	names := []string{"client", "router", "fabric"}
	for _, n := range lab.Nodes {
		names = append(names, topology.NodeName(n))
	}
	return names
}
