package main

import (
	"errors"
	"fmt"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

// modules is the index vmexec wrote.
type modules struct {
	file    map[string]string
	needs   map[string][]string
	aliases [][2]string // pattern, name
}

func readModules() (modules, error) {
	m := modules{file: map[string]string{}, needs: map[string][]string{}}
	data, err := os.ReadFile("/modules/index")
	if err != nil {
		return m, err
	}
	for _, line := range strings.Split(string(data), "\n") {
		f := strings.Fields(line)
		switch {
		case len(f) >= 3 && f[0] == "module":
			m.file[f[1]], m.needs[f[1]] = f[2], f[3:]
		case len(f) == 3 && f[0] == "alias":
			m.aliases = append(m.aliases, [2]string{f[1], f[2]})
		}
	}
	return m, nil
}

// modprobe loads what is named, by name or alias; flags are ignored.
func modprobe(args []string) error {
	m, err := readModules()
	if err != nil {
		return err
	}
	var errs []error
	for _, name := range args {
		if !strings.HasPrefix(name, "-") {
			errs = append(errs, m.load(name))
		}
	}
	return errors.Join(errs...)
}

func (m modules) load(want string) error {
	name := strings.ReplaceAll(want, "-", "_")
	if m.file[name] == "" {
		for _, a := range m.aliases {
			if ok, _ := path.Match(a[0], want); ok {
				name = a[1]
				break
			}
		}
	}
	if m.file[name] == "" {
		return fmt.Errorf("%s: no such module", want)
	}
	for _, need := range m.needs[name] {
		if err := m.load(need); err != nil {
			return err
		}
	}
	f, err := os.Open("/modules/" + m.file[name])
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.FinitModule(int(f.Fd()), "", 0); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}
