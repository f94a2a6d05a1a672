package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/netip"
	"os"
	"time"

	"fairway/dns"
	"fairway/ingress"
	"fairway/kube"
	"fairway/model"
	"fairway/proxy"

	"github.com/spf13/cobra"
)

// source is the flags that say where objects come from and which node is meant.
type source struct {
	config     string
	files      []string
	kubeconfig string
	server     string
	node       string
	backend    string
	output     string
	inCluster  bool // without any, the configuration's own source or the Pod's account
}

func (s *source) flags(c *cobra.Command, live bool) {
	f := c.Flags()
	f.StringVar(&s.config, "config", "", "configuration file (fairway run --help-config)")
	f.StringArrayVarP(&s.files, "filename", "f", nil, "manifest file or directory, - for standard input; may be repeated")
	f.StringVar(&s.node, "node", "", "the node whose rules are meant (default: the only one there is)")
	f.StringVar(&s.backend, "backend", "", "nftables or iptables (default: the configuration's proxy.mode)")
	f.StringVarP(&s.output, "output", "o", "text", "text or json")
	if live {
		f.StringVar(&s.kubeconfig, "kubeconfig", "", "read the objects from the API server of this kubeconfig")
		f.StringVar(&s.server, "server", "", "the API server's address in place of the kubeconfig's")
	}
}

// cluster is everything the offline commands work on.
type cluster struct {
	config   config
	snap     *model.Snapshot
	plan     *proxy.Plan
	problems []model.Problem
}

// load reads the objects and makes the plan of the node; node "" takes s.node, the
// only Node there is, or none.
func (s *source) load(c *cobra.Command, pods bool) (*cluster, error) {
	raw, err := readConfig(s.config)
	if err != nil {
		return nil, err
	}
	if s.backend != "" {
		raw.Proxy.Mode = s.backend
	}
	cfg, err := raw.typed()
	if err != nil {
		return nil, err
	}
	cfg.fromFiles = cfg.fromFiles || len(s.files) > 0
	cl := &cluster{config: cfg}
	objects, problems, err := s.objects(c, cfg, pods)
	if err != nil {
		return nil, err
	}
	snap, more := model.Build(nil, objects)
	cl.snap, cl.problems = snap, append(problems, more...)
	return cl, cl.planFor(s.node)
}

func (s *source) objects(c *cobra.Command, cfg config, pods bool) (model.Objects, []model.Problem, error) {
	if len(s.files) > 0 {
		files := &kube.Files{Paths: s.files}
		return files.Read()
	}
	if s.inCluster {
		s.kubeconfig, s.server = cmp.Or(s.kubeconfig, cfg.raw.Kubeconfig), cmp.Or(s.server, cfg.raw.Server)
		if cfg.raw.Manifests != "" {
			return (&kube.Files{Paths: []string{cfg.raw.Manifests}}).Read()
		}
	} else if s.kubeconfig == "" {
		return model.Objects{}, nil, fmt.Errorf("say where the objects are: -f FILE or --kubeconfig FILE")
	}
	rest, err := kube.ClientConfig(s.kubeconfig, s.server)
	if err != nil {
		return model.Objects{}, nil, err
	}
	api := &kube.API{Config: rest, Kinds: kube.Kinds{Namespaces: true, Pods: pods, Ingresses: true, Pools: true}}
	return api.Once(c.Context(), 15*time.Second)
}

// planFor makes the plan as node would.
func (cl *cluster) planFor(node string) error {
	cfg := cl.config.proxy
	if node == "" && len(cl.snap.Nodes) == 1 {
		node = cl.snap.Nodes[0].Name
	}
	cfg.Node = node
	if n := cl.snap.Node(node); n != nil {
		cfg.NodeIPs = append(append([]netip.Addr{}, n.InternalIPs...), n.ExternalIPs...)
		if cl.config.detectFromNode {
			cfg.Detector.CIDRs = n.PodCIDRs
		}
	} else if node != "" && len(cl.snap.Nodes) > 0 {
		return fmt.Errorf("node %s: no such Node among the objects", node)
	}
	cfg.LocalAddrs = append(cfg.NodeIPs, netip.MustParseAddr("127.0.0.1"), netip.IPv6Loopback())
	plan, problems := proxy.New(nil, cl.snap, cfg)
	cl.plan = plan
	cl.problems = append(cl.problems, problems...)
	return nil
}

func (cl *cluster) zone() *dns.Zone {
	zone, problems := dns.Build(nil, cl.snap, cl.config.dns())
	cl.problems = append(cl.problems, problems...)
	return zone
}

func (cl *cluster) table() *ingress.Table {
	table, problems := ingress.Build(nil, cl.snap, cl.config.ingress())
	cl.problems = append(cl.problems, problems...)
	return table
}

// finish prints the Problems, once each, on standard error.
func (cl *cluster) finish(c *cobra.Command) {
	seen := map[model.Problem]bool{}
	for _, p := range cl.problems {
		if !seen[p] {
			seen[p] = true
			fmt.Fprintln(c.ErrOrStderr(), "problem:", p)
		}
	}
}

func printJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// isTerminal tells whether a human watches: progress goes only there.
func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
