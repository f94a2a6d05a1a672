// Package cluster brings labs up and down. In come a lab's name and settings;
// out go its processes and, on the way, lines of progress. It makes no
// decision about the cluster's inside: that is the control plane's and the
// nodes' own affair.
package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"fairway/lab/fabric"
	"fairway/lab/pki"
	"fairway/lab/state"
	"fairway/lab/topology"
)

// Options are what `up` can be asked for. Zero values are the defaults of the
// command's flags only where noted there.
type Options struct {
	Nodes     int
	Family    topology.Family
	ProxyMode string // "" for the configuration file's, or nftables
	Peer      string // "" or "kube-proxy"
	Fairway   string // "daemonset", "process" or "none"
	Config    string // Fairway's configuration file, "" for its defaults
	Images    string // image map file, "" for one in the lab's directory
	Ports     state.Ports
	Wait      bool // for Nodes and Fairway to be ready
}

// Lab is one lab and where progress about it goes.
type Lab struct {
	Dir state.Dir
	Out *Progress
}

// Namespaces of the fabric process' open files, by exec name. The numbers are
// the order in which up hands the files over.
const (
	fdLAN = 3 + iota
	fdClient
	fdRouter
	fdAPI
	fdHTTP
	fdHTTPS
)

// nodeSpaces are the namespaces every node has of its own, besides the network.
const nodeSpaces = syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWUTS | syscall.CLONE_NEWIPC

var errInterrupted = errors.New("interrupted")

// Running reports whether the parts are alive that a lab cannot do without. A
// lab whose `up` failed or was killed may be running in part.
func (l Lab) Running() bool {
	return l.Dir.Process(state.ProcFabric).Alive() && l.Dir.Process(state.ProcControlPlane).Alive()
}

// Up brings a lab up. Left-overs of one that crashed are removed first.
func (l Lab) Up(ctx context.Context, o Options) error {
	if os.Geteuid() != 0 {
		return errors.New("a lab needs root: it makes network and mount namespaces")
	}
	if err := l.refuseSecond(); err != nil {
		return err
	}
	tools, err := findTools(o)
	if err != nil {
		return err
	}
	if o.ProxyMode == "" {
		if o.ProxyMode, err = configMode(o.Config); err != nil {
			return err
		}
	}
	unlock, err := l.Dir.Lock(true)
	if err != nil {
		return err
	}
	defer unlock()
	// Asked again: another `up` may have come to its end in between.
	if err := l.refuseSecond(); err != nil {
		return err
	}
	if err := l.clear(); err != nil {
		return err
	}
	lab := state.Lab{Family: o.Family, ProxyMode: o.ProxyMode, Peer: o.Peer, Fairway: o.Fairway, Tools: tools}
	for n := 1; n <= o.Nodes; n++ {
		lab.Nodes = append(lab.Nodes, n)
	}
	err = l.build(ctx, lab, o)
	if err != nil && ctx.Err() != nil {
		l.Out.Say("interrupted: taking the lab down")
		return errors.Join(errInterrupted, l.remove())
	}
	if err != nil {
		return fmt.Errorf("%w\nlab %s is left as it is, its logs are in %s; `fairway-lab down --name %s` removes it",
			err, l.Dir.Name, l.Dir.Path("logs"), l.Dir.Name)
	}
	return nil
}

func (l Lab) refuseSecond() error {
	if old, err := l.Dir.Load(); err == nil && old.Complete && l.Running() {
		return fmt.Errorf("lab %s is up already (`fairway-lab status --name %s`); take it down first", l.Dir.Name, l.Dir.Name)
	}
	return nil
}

func (l Lab) build(ctx context.Context, lab state.Lab, o Options) error {
	ports, listeners, err := listen(o.Ports)
	if err != nil {
		return err
	}
	defer closeAll(listeners)
	lab.Ports = ports
	if err := l.writeFiles(&lab, o); err != nil {
		return err
	}
	spaces, err := fabric.Build(lab.Family)
	if err != nil {
		return err
	}
	defer spaces.Close()
	if err := l.startCore(lab, spaces, listeners); err != nil {
		return err
	}
	l.Out.Say("control plane starting: etcd, kube-apiserver, kube-controller-manager, kube-scheduler")
	for _, n := range lab.Nodes {
		if err := l.startNode(lab, spaces.LAN, n); err != nil {
			return err
		}
	}
	l.Out.Say("%d nodes starting", len(lab.Nodes))
	if err := l.waitServer(ctx, lab); err != nil {
		return err
	}
	l.Out.Say("API server ready")
	if err := l.applyManifests(ctx, lab); err != nil {
		return err
	}
	if o.Wait {
		if err := l.waitReady(ctx, lab, lab.Nodes); err != nil {
			return err
		}
	}
	lab.Complete = true
	return l.Dir.Save(lab)
}

// writeFiles fills the lab's directory with what its processes read.
func (l Lab) writeFiles(lab *state.Lab, o Options) error {
	for _, sub := range []string{"pki", "logs", "bin"} {
		if err := os.MkdirAll(l.Dir.Path(sub), 0o755); err != nil {
			return err
		}
	}
	ips := append(lab.Family.Fabric(), topology.Loopback()...)
	ips = append(ips, lab.Family.FirstService()...)
	if err := pki.WriteControlPlane(l.Dir.Path("pki"), pki.Server{URL: lab.Family.ServerURL(), IPs: ips}); err != nil {
		return err
	}
	outside := fmt.Sprintf("https://127.0.0.1:%d", lab.Ports.API)
	if err := pki.WriteAdmin(l.Dir.Path("pki"), l.Dir.Kubeconfig(), outside); err != nil {
		return err
	}
	if err := os.Symlink(lab.Tools.Lab, l.Dir.Path("bin", "kubectl")); err != nil {
		return err
	}
	if err := l.copyConfig(lab, o.Config); err != nil {
		return err
	}
	if lab.Fairway == "process" {
		if err := l.writeProcessConfig(lab); err != nil {
			return err
		}
	}
	if err := l.chooseImages(lab, o.Images); err != nil {
		return err
	}
	return l.Dir.Save(*lab)
}

// chooseImages keeps the user's image map where it is, so that editing it has
// an effect, or makes an empty one for error messages to point at.
func (l Lab) chooseImages(lab *state.Lab, file string) error {
	if file != "" {
		if _, err := os.Stat(file); err != nil {
			return fmt.Errorf("image map: %w", err)
		}
		abs, err := filepath.Abs(file)
		lab.Images = abs
		return err
	}
	lab.Images = l.Dir.Path("images.yaml")
	return os.WriteFile(lab.Images, []byte(emptyImageMap), 0o644)
}

const emptyImageMap = `# Programs of this machine that stand for container images in this lab, before the built-in ones.
# Read again when it changes.
images: []
`

// copyConfig keeps Fairway's configuration with the lab.
func (l Lab) copyConfig(lab *state.Lab, file string) error {
	if file == "" {
		return nil
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("configuration: %w", err)
	}
	lab.Config = l.Dir.Path("fairway.yaml")
	return os.WriteFile(lab.Config, raw, 0o644)
}

// startCore starts the two processes that are there whatever nodes there are.
func (l Lab) startCore(lab state.Lab, s fabric.Spaces, listeners []*os.File) error {
	err := spawn(l.Dir, lab, daemon{
		name:  state.ProcFabric,
		args:  l.daemonArgs("fabric"),
		files: append([]*os.File{s.LAN, s.Client, s.Router}, listeners...),
	})
	if err != nil {
		return err
	}
	return spawn(l.Dir, lab, daemon{
		name:  state.ProcControlPlane,
		args:  l.daemonArgs("control-plane"),
		space: s.LAN,
	})
}

// startNode makes node n's files and network and starts it.
func (l Lab) startNode(lab state.Lab, lan *os.File, n int) error {
	name := topology.NodeName(n)
	if err := os.MkdirAll(l.Dir.Node(name), 0o755); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	err := pki.WriteNode(l.Dir.Path("pki"), l.Dir.Node(name), name, lab.Family.ServerURL(), lab.Family.Node(n))
	if err != nil {
		return err
	}
	ns, err := fabric.BuildNode(lan, lab.Family, n)
	if err != nil {
		return err
	}
	// The node's processes hold it from here on, so it goes when they go.
	defer ns.Close()
	return spawn(l.Dir, lab, daemon{
		name:  name,
		args:  append(l.daemonArgs("node"), "--number", fmt.Sprint(n)),
		space: ns,
		own:   nodeSpaces,
	})
}

func (l Lab) daemonArgs(role string) []string {
	return []string{role, "--state-root", l.Dir.Root, "--name", l.Dir.Name}
}

// AddNode adds the next node to a running lab and returns its name.
func (l Lab) AddNode(ctx context.Context) (string, error) {
	return l.changeNode(ctx, func(lab *state.Lab) (int, error) {
		n := 1
		for slices.Contains(lab.Nodes, n) {
			n++
		}
		if n > topology.MaxNodes {
			return 0, fmt.Errorf("a lab has at most %d nodes", topology.MaxNodes)
		}
		lab.Nodes = append(lab.Nodes, n)
		return n, l.Dir.Save(*lab)
	})
}

// StartNode powers a node on that StopNode has powered off.
func (l Lab) StartNode(ctx context.Context, name string) error {
	_, err := l.changeNode(ctx, func(lab *state.Lab) (int, error) {
		n, err := nodeNumber(*lab, name)
		if err == nil && l.Dir.Process(name).Alive() {
			err = fmt.Errorf("%s runs already", name)
		}
		return n, err
	})
	return err
}

func (l Lab) changeNode(ctx context.Context, choose func(*state.Lab) (int, error)) (string, error) {
	unlock, lab, err := l.open()
	if err != nil {
		return "", err
	}
	defer unlock()
	n, err := choose(&lab)
	if err != nil {
		return "", err
	}
	lan, err := os.Open(l.spacePath("fabric"))
	if err != nil {
		return "", err
	}
	defer lan.Close()
	l.Out.Say("%s starting", topology.NodeName(n))
	if err := l.startNode(lab, lan, n); err != nil {
		return "", err
	}
	if lab.Fairway == "process" {
		// The Services of Fairway itself get one endpoint more.
		if err := l.applyManifests(ctx, lab); err != nil {
			return "", err
		}
	}
	return topology.NodeName(n), l.waitReady(ctx, lab, []int{n})
}

// StopNode pulls a node's plug: everything on it dies at once, and the cluster
// has to notice by itself.
func (l Lab) StopNode(name string) error {
	unlock, lab, err := l.open()
	if err != nil {
		return err
	}
	defer unlock()
	if _, err := nodeNumber(lab, name); err != nil {
		return err
	}
	p := l.Dir.Process(name)
	if !p.Alive() {
		return fmt.Errorf("%s is off already", name)
	}
	if err := p.Kill(); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return p.WaitGone(10 * time.Second)
}

// open locks a running lab and reads its settings.
func (l Lab) open() (func(), state.Lab, error) {
	if !l.Running() {
		return nil, state.Lab{}, fmt.Errorf("lab %s is not up", l.Dir.Name)
	}
	unlock, err := l.Dir.Lock(false)
	if err != nil {
		return nil, state.Lab{}, err
	}
	lab, err := l.Dir.Load()
	if err != nil {
		unlock()
		return nil, state.Lab{}, err
	}
	return unlock, lab, nil
}

func nodeNumber(lab state.Lab, name string) (int, error) {
	for _, n := range lab.Nodes {
		if topology.NodeName(n) == name {
			return n, nil
		}
	}
	return 0, fmt.Errorf("no node %q in this lab", name)
}

func closeAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}
