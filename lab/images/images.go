// Package images says which program of this machine stands for a container image. In comes a map file and an image
// reference; out goes the command, environment and files that the image would bring, or an error that says which line
// to add. It never fetches anything.
package images

import (
	_ "embed"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"sigs.k8s.io/yaml"
)

//go:embed default.yaml
var builtin []byte // go:embed needs a variable; nothing writes to it

// ErrNoImage is wrapped by the error for a reference that no entry matches, or whose files are missing.
var ErrNoImage = errors.New("image not available")

// Image is what an image brings. In Binds, {bin} is the directory of the lab's programs and {cinit} the container helper.
type Image struct {
	Match      []string          `json:"match"`            // globs on the reference; * also matches /
	Needs      []string          `json:"needs,omitempty"`  // the entry is passed over unless these files exist
	Refuse     string            `json:"refuse,omitempty"` // why such an image cannot run here
	Entrypoint []string          `json:"entrypoint,omitempty"`
	Cmd        []string          `json:"cmd,omitempty"`
	Env        map[string]string `json:"env,omitempty"`
	Cwd        string            `json:"cwd,omitempty"`
	UID        int               `json:"uid,omitempty"`
	GID        int               `json:"gid,omitempty"`
	StopSignal string            `json:"stopSignal,omitempty"` // e.g. SIGQUIT; SIGTERM when empty
	Bare       bool              `json:"bare,omitempty"`       // without the machine's tools
	Local      bool              `json:"local,omitempty"`      // there without a pull
	Dirs       []string          `json:"dirs,omitempty"`
	Binds      map[string]string `json:"binds,omitempty"` // path in the container: file of this machine
	Files      map[string]string `json:"files,omitempty"` // path in the container: text
	Links      map[string]string `json:"links,omitempty"` // path in the container: target
	SelfSigned *KeyPair          `json:"selfSigned,omitempty"`
}

// KeyPair names two files that get a certificate for "localhost" and its key.
type KeyPair struct {
	Cert string `json:"cert"`
	Key  string `json:"key"`
}

type file struct {
	Images []Image `json:"images"`
}

// Map is a list of entries; the first that matches wins. A map file's entries come before the built-in ones, and it is
// read again when it changes, so that a Pod that waits for its image needs no restart of the node.
type Map struct {
	path    string
	bin     string
	builtin []Image

	mu      sync.Mutex
	changed time.Time
	own     []Image
	pair    map[string]string
}

// Load reads the map file at path, which need not exist: then its name only appears in the advice for unknown images.
// An empty path means the built-in map alone. {bin} is the directory of the running program.
func Load(path string) (*Map, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("image map: %w", err)
	}
	return LoadWith(path, filepath.Dir(self))
}

// LoadWith is Load with the directory that {bin} stands for.
func LoadWith(path, bin string) (*Map, error) {
	m := &Map{path: path, bin: bin}
	if path != "" {
		abs, err := filepath.Abs(path)
		if err != nil {
			return nil, fmt.Errorf("image map %s: %w", path, err)
		}
		m.path = abs
	}
	var err error
	if m.builtin, err = parse(builtin); err != nil {
		return nil, fmt.Errorf("built-in image map: %w", err)
	}
	if err := m.refresh(); err != nil {
		return nil, err
	}
	return m, nil
}

func parse(text []byte) ([]Image, error) {
	var f file
	if err := yaml.UnmarshalStrict(text, &f); err != nil {
		return nil, err
	}
	for i, image := range f.Images {
		if len(image.Match) == 0 {
			return nil, fmt.Errorf("images[%d]: no match", i)
		}
		for _, glob := range image.Match {
			if _, err := path.Match(glob, ""); err != nil {
				return nil, fmt.Errorf("images[%d]: match %q: %w", i, glob, err)
			}
		}
	}
	return f.Images, nil
}

// refresh reads the file when it is new or changed.
func (m *Map) refresh() error {
	if m.path == "" {
		return nil
	}
	info, err := os.Stat(m.path)
	if errors.Is(err, os.ErrNotExist) {
		m.own, m.changed = nil, time.Time{}
		return nil
	}
	if err != nil {
		return fmt.Errorf("image map: %w", err)
	}
	if info.ModTime().Equal(m.changed) {
		return nil
	}
	text, err := os.ReadFile(m.path)
	if err != nil {
		return fmt.Errorf("image map: %w", err)
	}
	own, err := parse(text)
	if err != nil {
		return fmt.Errorf("image map %s: %w", m.path, err)
	}
	m.own, m.changed = own, info.ModTime()
	return nil
}

// Find returns the image for a reference, with {bin} replaced and its certificate made.
func (m *Map) Find(ref string) (Image, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.refresh(); err != nil {
		return Image{}, fmt.Errorf("%s: %w: %w", ref, ErrNoImage, err)
	}
	for _, list := range [][]Image{m.own, m.builtin} {
		for _, image := range list {
			if image.matches(ref) && m.present(image.Needs) {
				return m.complete(ref, image)
			}
		}
	}
	return Image{}, fmt.Errorf("%w: no program of this machine is mapped to %s; %s", ErrNoImage, ref, m.advice(ref))
}

func (m *Map) advice(ref string) string {
	where := "a map file given to the lab"
	if m.path != "" {
		where = m.path
	}
	return fmt.Sprintf(`add to %s, under "images:":  - {match: [%q], entrypoint: [/usr/bin/PROGRAM]}`, where, ref)
}

func (i Image) matches(ref string) bool {
	// path.Match's * stops at a slash; a reference is not a path to people who write patterns.
	flat := strings.ReplaceAll(ref, "/", "!")
	for _, glob := range i.Match {
		if ok, err := path.Match(strings.ReplaceAll(glob, "/", "!"), flat); err == nil && ok {
			return true
		}
	}
	return false
}

func (m *Map) present(files []string) bool {
	for _, name := range files {
		if _, err := os.Stat(m.expand(name)); err != nil {
			return false
		}
	}
	return true
}

func (m *Map) expand(name string) string { return strings.ReplaceAll(name, "{bin}", m.bin) }

func (m *Map) complete(ref string, image Image) (Image, error) {
	if image.Refuse != "" {
		return Image{}, fmt.Errorf("%w: %s: %s", ErrNoImage, ref, image.Refuse)
	}
	binds := make(map[string]string, len(image.Binds))
	for at, name := range image.Binds {
		name = m.expand(name)
		if _, err := os.Stat(name); err != nil && !strings.HasPrefix(name, "{cinit}") {
			return Image{}, fmt.Errorf("%w: %s is mapped to %s, which is missing: build it with `make lab`", ErrNoImage, ref, name)
		}
		binds[at] = name
	}
	image.Binds = binds
	if image.SelfSigned == nil {
		return image, nil
	}
	return m.withPair(image)
}

func (m *Map) withPair(image Image) (Image, error) {
	if m.pair == nil {
		cert, key, err := selfSigned()
		if err != nil {
			return Image{}, fmt.Errorf("certificate for localhost: %w", err)
		}
		m.pair = map[string]string{"cert": cert, "key": key}
	}
	files := map[string]string{image.SelfSigned.Cert: m.pair["cert"], image.SelfSigned.Key: m.pair["key"]}
	for at, text := range image.Files {
		files[at] = text
	}
	image.Files = files
	return image, nil
}
