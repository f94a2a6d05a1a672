package cluster

import (
	"fmt"
	"os"
	"path/filepath"

	"fairway/lab/state"
)

// findTools looks for the programs a lab runs, which lie beside the running
// one, and says how to build what is missing.
func findTools(o Options) (state.Tools, error) {
	self, err := os.Executable()
	if err != nil {
		return state.Tools{}, fmt.Errorf("own path: %w", err)
	}
	if self, err = filepath.EvalSymlinks(self); err != nil {
		return state.Tools{}, fmt.Errorf("own path: %w", err)
	}
	bin := filepath.Dir(self)
	t := state.Tools{Lab: self, Cinit: filepath.Join(bin, "cinit"), Fairway: filepath.Join(bin, "fairway")}
	if _, err := os.Stat(t.Cinit); err != nil {
		return t, fmt.Errorf("container helper: %w (lab/build.sh builds it)", err)
	}
	if o.Fairway == "none" {
		return t, nil
	}
	if _, err := os.Stat(t.Fairway); err != nil {
		return t, fmt.Errorf("fairway itself: %w (`make build` builds it, --fairway none goes without)", err)
	}
	if _, err := os.Stat(manifest(t, "fairway.yaml")); err != nil {
		return t, fmt.Errorf("fairway's manifest: %w", err)
	}
	return t, nil
}

// manifest is the path of one of the repository's deployment files, which lie
// in deploy/ next to the directory of the programs.
func manifest(t state.Tools, file string) string {
	return filepath.Join(filepath.Dir(filepath.Dir(t.Lab)), "deploy", file)
}
