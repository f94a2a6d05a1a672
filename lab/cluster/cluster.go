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
	"strings"
	"syscall"

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

// Running reports whether the lab is there: its LAN, without which nothing is.
// A lab whose `up` failed or was killed may be running in part.
func (l Lab) Running() bool { return l.Dir.Process(state.ProcFabric).Alive() }

// hasControlPlane returns an error that says how to start the control plane
// where it is off.
func (l Lab) hasControlPlane() error {
	if l.Dir.Process(state.ProcControlPlane).Alive() {
		return nil
	}
	return fmt.Errorf("the control plane of lab %[1]s is off; `fairway-lab --name %[1]s start-node %[2]s` starts it",
		l.Dir.Name, state.ProcControlPlane)
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
	if err := os.WriteFile(l.Dir.Hosts(), []byte(hosts(lab.Family)), 0o644); err != nil {
		return err
	}
	return l.Dir.Save(*lab)
}

// hosts is what the LAN's resolver knows at first: the hosts outside the
// cluster, the client under the names of a site that everybody knows as well.
func hosts(f topology.Family) string {
	var s strings.Builder
	s.WriteString(`# What the lab's resolver (172.30.0.1, fd00:30::1) knows; any other name is NXDOMAIN.
# As hosts(5): an address, a name, and aliases, which are answered by a CNAME to that name.
# Read again for every query.
`)
	for i, client := range f.Client() {
		fmt.Fprintf(&s, "%s\twww.a.shifen.com www.baidu.com\n", client)
		fmt.Fprintf(&s, "%s\tclient.example.com\n%s\trouter.example.com\n", client, f.Router()[i])
	}
	return s.String()
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
	return l.startControlPlane(lab, s.LAN)
}

func (l Lab) startControlPlane(lab state.Lab, lan *os.File) error {
	return spawn(l.Dir, lab, daemon{
		name:  state.ProcControlPlane,
		args:  l.daemonArgs("control-plane"),
		space: lan,
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

func closeAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}
