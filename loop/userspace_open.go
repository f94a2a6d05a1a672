package loop

import (
	"errors"
	"fmt"
	"log/slog"
	"os"

	"fairway/kernel"
	"fairway/model"
	"fairway/proxy/userspace"
	"fairway/server/stream"
)

// OpenUserspace makes the backend for a network namespace: netns is a descriptor and
// enter runs a function in it (0 and nil for the current one). Without the privilege to
// write rules the mode runs with listeners alone; it cannot run where it has the
// privilege and the kernel lacks a feature.
func OpenUserspace(netns int, enter func(f func() error) error, node string) (*Userspace, []model.Problem, error) {
	server := stream.New(stream.Settings{Enter: enter, Log: slog.Default()})
	hand := kernel.NewNFTablesNamed(netns, userspace.TableName)
	missing := hand.Probe(false)
	if len(missing) > 0 && errors.Is(missing[0], os.ErrPermission) {
		return NewUserspace(server, nil), nil, nil
	}
	if err := kernel.ProbeError(false, missing); err != nil {
		return nil, nil, err
	}
	rules := NewNFTables(hand)
	if missing = hand.Probe(true); len(missing) == 0 {
		return NewUserspace(server, rules), nil, nil
	}
	rules.noV6 = true
	return NewUserspace(server, rules), []model.Problem{nodeProblem(node, "FamilyNotServed", fmt.Sprintf("no Service rules for %v", kernel.ProbeError(true, missing)))}, nil
}
