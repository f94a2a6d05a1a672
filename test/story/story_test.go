package story

import (
	"slices"
	"testing"
)

func TestUnknownSections(t *testing.T) {
	s, err := Parse("x", []byte("-- objects.yaml --\n-- packets --\n-- want-plan --\n-- want-paln --\n-- pakets --\n"))
	if err != nil {
		t.Fatal(err)
	}
	if got := s.unknown(); !slices.Equal(got, []string{"want-paln", "pakets"}) {
		t.Errorf("%v", got)
	}
}
