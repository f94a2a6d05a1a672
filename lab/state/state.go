// Package state keeps what a lab remembers between two commands: its
// directory, its settings, its processes and who may change it now. In come
// the directory for all labs and a lab's name; out go paths, records and a
// lock. It never starts or talks to anything.
package state

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"sort"
	"strings"

	"fairway/lab/topology"

	"golang.org/x/sys/unix"
)

// DefaultRoot holds the directories of all labs of a machine.
const DefaultRoot = "/var/lib/fairway-lab"

// Dir is one lab's directory.
type Dir struct {
	Root string // holds all labs
	Name string
}

// Lab is what the lab was asked to be, with what was chosen for it.
type Lab struct {
	Family    topology.Family `json:"family"`
	ProxyMode string          `json:"proxyMode"`
	Peer      string          `json:"peer,omitempty"`
	Fairway   string          `json:"fairway"`
	Config    string          `json:"config,omitempty"` // Fairway's own configuration file
	Nodes     []int           `json:"nodes"`            // numbers of the nodes, powered on or not
	Ports     Ports           `json:"ports"`
	Images    string          `json:"images"` // the image map in force
	Tools     Tools           `json:"tools"`
	Complete  bool            `json:"complete"` // `up` came to its end
}

// Ports are the loopback ports of the host that lead into the lab.
type Ports struct {
	API   int `json:"api"`
	HTTP  int `json:"http"`
	HTTPS int `json:"https"`
}

// Tools are the paths of the programs a lab runs.
type Tools struct {
	Lab     string `json:"lab"`
	Cinit   string `json:"cinit"`
	Fairway string `json:"fairway"`
}

// Names of the lab's processes; nodes use their own name.
const (
	ProcFabric       = "fabric"
	ProcControlPlane = "control-plane"
)

// ErrBusy says that another command is changing the lab.
var ErrBusy = errors.New("another fairway-lab command is changing this lab")

// CheckName says whether a lab may have this name. It becomes part of socket
// paths, which the kernel limits to 107 bytes.
func CheckName(name string) error {
	if !regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,18}[a-z0-9])?$`).MatchString(name) {
		return fmt.Errorf("lab name %q: want at most 20 of a-z, 0-9 and -", name)
	}
	return nil
}

// Path joins elem to the lab's directory.
func (d Dir) Path(elem ...string) string {
	return filepath.Join(append([]string{d.Root, d.Name}, elem...)...)
}

// PKI is where the lab's certificates are.
func (d Dir) PKI(file string) string { return d.Path("pki", file) }

// Log is the log file of one of the lab's processes.
func (d Dir) Log(process string) string { return d.Path("logs", process+".log") }

// Node is a path in a node's own directory.
func (d Dir) Node(node string, elem ...string) string {
	return d.Path(append([]string{"nodes", node}, elem...)...)
}

// Kubeconfig is the administrator's file for the host, by loopback.
func (d Dir) Kubeconfig() string { return d.Path("kubeconfig") }

// InsideKubeconfig is the administrator's file for the lab's own namespaces.
func (d Dir) InsideKubeconfig() string { return d.PKI("admin.kubeconfig") }

// Hosts is the file of the names that the LAN's resolver knows.
func (d Dir) Hosts() string { return d.Path("hosts") }

// Exists reports whether there is a lab of this name, running or not.
func (d Dir) Exists() bool {
	_, err := os.Stat(d.Path())
	return err == nil
}

// Lock keeps other commands from changing the lab until the returned function
// is called. It makes the directory when create is set. A lab that is being
// changed gives ErrBusy.
func (d Dir) Lock(create bool) (unlock func(), err error) {
	for {
		if create {
			if err := os.MkdirAll(d.Path(), 0o755); err != nil {
				return nil, fmt.Errorf("lab %s: %w", d.Name, err)
			}
		}
		f, err := os.Open(d.Path())
		if err != nil {
			return nil, fmt.Errorf("lab %s: %w", d.Name, err)
		}
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
			f.Close()
			if errors.Is(err, unix.EWOULDBLOCK) {
				return nil, fmt.Errorf("lab %s: %w", d.Name, ErrBusy)
			}
			return nil, fmt.Errorf("lab %s: lock: %w", d.Name, err)
		}
		if d.same(f) {
			return func() { f.Close() }, nil
		}
		// The lab was removed between the open and the lock.
		f.Close()
	}
}

func (d Dir) same(f *os.File) bool {
	locked, err1 := f.Stat()
	named, err2 := os.Stat(d.Path())
	return err1 == nil && err2 == nil && os.SameFile(locked, named)
}

// Save writes the lab's settings.
func (d Dir) Save(l Lab) error { return d.write("lab.json", l) }

// Load reads the lab's settings.
func (d Dir) Load() (Lab, error) {
	var l Lab
	err := d.read("lab.json", &l)
	return l, err
}

// Record remembers process pid under a name.
func (d Dir) Record(name string, pid int) error {
	p, err := Identify(pid)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return d.write(filepath.Join("processes", name+".json"), p)
}

// Forget drops a remembered process.
func (d Dir) Forget(name string) error {
	err := os.Remove(d.Path("processes", name+".json"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// Process returns the remembered process of that name; the zero Process, which
// is not alive, if there is none.
func (d Dir) Process(name string) Process {
	var p Process
	if d.read(filepath.Join("processes", name+".json"), &p) != nil {
		return Process{}
	}
	return p
}

// Processes returns the names of all remembered processes, sorted.
func (d Dir) Processes() []string {
	files, err := filepath.Glob(d.Path("processes", "*.json"))
	if err != nil {
		return nil
	}
	names := make([]string, 0, len(files))
	for _, f := range files {
		names = append(names, strings.TrimSuffix(filepath.Base(f), ".json"))
	}
	sort.Strings(names)
	return names
}

// write replaces a file whole, so that a reader never sees half of it.
func (d Dir) write(file string, value any) error {
	raw, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	path := d.Path(file)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	if err := os.WriteFile(path+".new", append(raw, '\n'), 0o644); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return os.Rename(path+".new", path)
}

func (d Dir) read(file string, value any) error {
	raw, err := os.ReadFile(d.Path(file))
	if err != nil {
		return fmt.Errorf("lab %s: %w", d.Name, err)
	}
	if err := json.Unmarshal(raw, value); err != nil {
		return fmt.Errorf("lab %s: %s: %w", d.Name, file, err)
	}
	return nil
}

// List returns the names of all labs under root, sorted.
func List(root string) []string {
	entries, err := os.ReadDir(root)
	if err != nil {
		return nil
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() && CheckName(e.Name()) == nil {
			names = append(names, e.Name())
		}
	}
	return names
}
