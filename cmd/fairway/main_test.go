package main

import (
	"testing"

	"fairway/kernel"

	"github.com/rogpeppe/go-internal/testscript"
)

func TestMain(m *testing.M) { testscript.Main(m, map[string]func(){"fairway": main}) }

// TestCommands runs the scripts of testdata: what a person types, offline.
func TestCommands(t *testing.T) {
	own := kernel.DefaultAddrs()
	testscript.Run(t, testscript.Params{
		Dir: "testdata", RequireExplicitExec: true,
		Setup: func(e *testscript.Env) error { // OWN is this machine's own address
			if len(own) > 0 {
				e.Setenv("OWN", own[0].String())
			}
			return nil
		},
		Condition: func(cond string) (bool, error) { return cond == "own" && len(own) > 0, nil },
	})
}

// TestConfig checks that the documented default reads, and that errors name the field.
func TestConfig(t *testing.T) {
	raw, err := readConfig("")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := raw.typed(); err != nil {
		t.Fatal(err)
	}
}
