package kernel

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"fairway/proxy/iptables"
)

// FakeIPTables is a family's tables in memory. It keeps the kernel's rules about what
// may be loaded and fails when told to, for tests of what works with IPTables.
type FakeIPTables struct {
	V6 bool
	// Fail, when set, is asked before each Restore; its error is returned and nothing
	// is changed.
	Fail func(input string) error
	// Refuse is a word the kernel does not know: a Restore with it fails.
	Refuse string
	// Size is what Batch returns, 500 when 0.
	Size int

	mu       sync.Mutex
	rules    *iptables.Program
	lists    int
	inputs   []string
	localnet bool
}

// Batch is the number of ServicePorts to put into one Restore.
func (f *FakeIPTables) Batch() int {
	if f.Size > 0 {
		return f.Size
	}
	return nftBatch
}

// List returns what is loaded.
func (f *FakeIPTables) List(context.Context) (*iptables.Program, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lists++
	return f.listing()
}

func (f *FakeIPTables) listing() (*iptables.Program, error) {
	if f.rules == nil {
		return iptables.Parse("", f.V6)
	}
	return f.rules, nil
}

// Restore applies input, or nothing of it.
func (f *FakeIPTables) Restore(_ context.Context, input string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.inputs = append(f.inputs, input)
	if f.Fail != nil {
		if err := f.Fail(input); err != nil {
			return err
		}
	}
	if f.Refuse != "" {
		for n, line := range strings.Split(input, "\n") {
			if strings.Contains(line, f.Refuse) {
				return fmt.Errorf("line %d failed: %s", n+1, line)
			}
		}
	}
	have, err := f.listing()
	if err != nil {
		return err
	}
	next, err := have.Apply(input, f.V6)
	if err != nil {
		return err
	}
	f.rules = next
	return nil
}

// Intact tells whether the canary chains are there.
func (f *FakeIPTables) Intact(context.Context) (bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	have, err := f.listing()
	return err == nil && strings.Count(have.Text(f.V6), "\n:"+iptables.Canary+" ") == 3, err
}

// RouteLocalnet is remembered.
func (f *FakeIPTables) RouteLocalnet() error {
	f.localnet = true
	return nil
}

// Flush empties the tables, as an administrator's script would.
func (f *FakeIPTables) Flush() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rules = nil
}

// Seen returns the inputs since the last call, and how often List was called.
func (f *FakeIPTables) Seen() (inputs []string, lists int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	inputs, lists, f.inputs, f.lists = f.inputs, f.lists, nil, 0
	return inputs, lists
}

// Localnet tells whether RouteLocalnet was called.
func (f *FakeIPTables) Localnet() bool { return f.localnet }
