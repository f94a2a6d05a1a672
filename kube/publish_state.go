package kube

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"fairway/model"
)

// Load reads the addresses given out before a restart from State; a file that is not
// there yet is none. After an error the addresses are given out anew.
func (l *Local) Load() error {
	if l.State == "" {
		return nil
	}
	data, err := os.ReadFile(l.State)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("addresses given out before: %w", err)
	}
	addrs, err := parseState(data)
	if err != nil {
		return fmt.Errorf("addresses given out before: %s: %w", l.State, err)
	}
	l.mu.Lock()
	l.addrs = addrs
	l.mu.Unlock()
	return nil
}

// parseState reads {"namespace/name": ["192.0.2.10"]}.
func parseState(data []byte) (map[model.Name][]netip.Addr, error) {
	var raw map[string][]netip.Addr
	if err := json.Unmarshal(data, &raw); err != nil {
		return nil, err
	}
	addrs := make(map[model.Name][]netip.Addr, len(raw))
	for k, list := range raw {
		ns, name, ok := strings.Cut(k, "/")
		if !ok {
			return nil, fmt.Errorf("%q is not namespace/name", k)
		}
		addrs[model.Name{Namespace: ns, Name: name}] = list
	}
	return addrs, nil
}

// save replaces State whole, so that a crash or a full disk leaves the old file.
func (l *Local) save(addrs map[model.Name][]netip.Addr) error {
	if l.State == "" {
		return nil
	}
	raw := make(map[string][]netip.Addr, len(addrs))
	for n, list := range addrs {
		raw[n.String()] = list
	}
	data, err := json.MarshalIndent(raw, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(l.State), 0o755); err != nil {
		return fmt.Errorf("keeping addresses: %w", err)
	}
	tmp := l.State + ".new"
	if err := os.WriteFile(tmp, append(data, '\n'), 0o644); err != nil {
		return fmt.Errorf("keeping addresses: %w", err)
	}
	if err := os.Rename(tmp, l.State); err != nil {
		return fmt.Errorf("keeping addresses: %w", err)
	}
	return nil
}
