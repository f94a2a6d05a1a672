package main

import (
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

func TestMain(m *testing.M) { testscript.Main(m, map[string]func(){"fairway": main}) }

// TestCommands runs the scripts of testdata: what a person types, offline.
func TestCommands(t *testing.T) {
	testscript.Run(t, testscript.Params{Dir: "testdata", RequireExplicitExec: true})
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
