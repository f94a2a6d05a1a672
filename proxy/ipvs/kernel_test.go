package ipvs

import (
	"slices"
	"strings"
	"testing"
)

// apply does to a State what the kernel would, in the order the backend keeps, and fails
// where the kernel would; what the kernel lets pass and no Change should hold, such as
// deleting an element that is not there, fails too.
func apply(t *testing.T, st *State, c *Change) {
	t.Helper()
	strict(t, st, c.SetsBefore)
	if err := st.RestoreRules(c.Rules); err != nil {
		t.Error(err)
	}
	for _, o := range c.Services {
		if err := st.Do(o); err != nil {
			t.Error(err)
		}
	}
	for _, a := range c.BindAddrs {
		if st.Addrs[a] {
			t.Errorf("%s is bound twice", a)
		}
		st.Addrs[a] = true
	}
	for _, a := range c.UnbindAddrs {
		if !st.Addrs[a] {
			t.Errorf("%s is unbound and was not there", a)
		}
		delete(st.Addrs, a)
	}
	for _, o := range c.Removals {
		if err := st.Do(o); err != nil {
			t.Error(err)
		}
	}
	strict(t, st, c.SetsAfter)
}

func strict(t *testing.T, st *State, input string) {
	t.Helper()
	for _, line := range strings.SplitAfter(input, "\n") {
		if f := strings.Fields(line); len(f) > 2 && slices.Contains([]string{"add", "del"}, f[0]) {
			e, err := ParseElement(f[2])
			if err != nil || e.Text() != f[2] {
				t.Errorf("%s: %v, read as %s", line, err, e.Text())
			}
			if _, in := st.Sets[f[1]].Elements[e]; f[0] == "del" && !in {
				t.Errorf("ipset %s: not there", line)
			}
		}
		if err := st.Restore(line); err != nil {
			t.Error(err)
		}
	}
}
