package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"slices"

	"fairway/dns"
	"fairway/ingress"
	"fairway/kernel"
	"fairway/kube"
	"fairway/lb"
	"fairway/loop"
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
	apiServers []netip.AddrPort // whose objects were read
	clients    *clients         // of that API server, nil with files
	here       bool             // about this machine: the configuration's own source, the Pod's account, its addresses
	inForce    bool             // about the mode in force, not the configuration's
}

func (s *source) flags(c *cobra.Command, live bool) {
	f := c.Flags()
	f.StringVar(&s.config, "config", "", "configuration file (fairway run --help-config)")
	f.StringArrayVarP(&s.files, "filename", "f", nil, "manifest file or directory, - for standard input; may be repeated")
	f.StringVar(&s.node, "node", "", "the node whose rules are meant (default: the only one there is)")
	whose := "configuration's proxy.mode"
	if s.inForce {
		whose = "mode in force: of --config, the cluster's ConfigMap, this machine's proxy"
	}
	f.StringVar(&s.backend, "backend", "", modeNames()+" (default: the "+whose+")")
	f.StringVarP(&s.output, "output", "o", "text", "text or json")
	if live {
		f.StringVar(&s.kubeconfig, "kubeconfig", "", "read the objects from the API server of this kubeconfig (default $KUBECONFIG)")
		f.StringVar(&s.server, "server", "", "the API server's address in place of the kubeconfig's")
	}
}

// cluster is everything the offline commands work on.
type cluster struct {
	config   config
	objects  model.Objects
	clients  *clients // nil with files
	standIn  bool     // the objects have no Node, and this machine stands in for one, as in run
	snap     *model.Snapshot
	plan     *proxy.Plan
	problems []model.Problem
}

// load reads the objects and makes the plan of the node; node "" takes s.node, the
// only Node there is, or none.
func (s *source) load(c *cobra.Command, pods bool) (*cluster, error) {
	if s.output != "text" && s.output != "json" {
		return nil, fmt.Errorf("--output %s: want text or json", s.output)
	}
	raw, err := readConfig(s.config)
	if err != nil {
		return nil, err
	}
	if s.inForce {
		if err := s.modeInForce(c, &raw); err != nil {
			return nil, err
		}
	}
	raw.Proxy.Mode = cmp.Or(s.backend, raw.Proxy.Mode)
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
	if (s.here || s.inForce) && cfg.fromFiles && len(objects.Nodes) == 0 {
		cl.standIn = true
		objects = withOwnNode(objects, cmp.Or(s.node, cfg.raw.Node), kernel.DefaultAddrs())
	}
	cl.config.proxy.APIServers, cl.clients = s.apiServers, s.clients
	cl.problems = append(problems, cl.build(objects)...)
	return cl, cl.planFor(s.node)
}

// build makes the snapshot. Addresses of pools are given out first where the program
// that follows files would do so.
func (cl *cluster) build(objects model.Objects) []model.Problem {
	snap, problems := model.Build(nil, objects)
	if cl.config.fromFiles && len(objects.Pools) > 0 {
		result, _ := lb.Assign(snap, cl.config.lb())
		local := &kube.Local{}
		local.Publish(kube.Report{Services: result.Wants})
		objects.Services = local.Overlay(objects.Services)
		snap, problems = model.Build(snap, objects)
	}
	cl.objects, cl.snap = objects, snap
	return problems
}

func (s *source) objects(c *cobra.Command, cfg config, pods bool) (model.Objects, []model.Problem, error) {
	if len(s.files) > 0 {
		files := &kube.Files{Paths: s.files}
		return files.Read()
	}
	if s.here {
		s.kubeconfig, s.server = cmp.Or(s.kubeconfig, cfg.raw.Kubeconfig), cmp.Or(s.server, cfg.raw.Server)
		if cfg.raw.Manifests != "" {
			return (&kube.Files{Paths: []string{cfg.raw.Manifests}}).Read()
		}
	}
	s.kubeconfig = cmp.Or(s.kubeconfig, os.Getenv("KUBECONFIG"))
	if s.kubeconfig == "" && !s.here {
		return model.Objects{}, nil, errors.New("say where the objects are: -f FILE or --kubeconfig FILE")
	}
	return s.fromServer(c.Context(), cfg, kube.Kinds{Namespaces: true, Pods: pods, Ingresses: true, Pools: true})
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
	cfg = loop.OwnAddrs(cfg, cl.config.bindAddress)
	cfg.LocalAddrs = append(slices.Clone(cfg.NodeIPs), netip.MustParseAddr("127.0.0.1"), netip.IPv6Loopback())
	if cl.standIn {
		all, err := kernel.LocalAddrs()
		if err != nil {
			return err
		}
		cfg.LocalAddrs = append(cfg.LocalAddrs, all...)
	}
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

// finish prints the Problems that matter here, once each, on standard error; nil is all.
func (cl *cluster) finish(c *cobra.Command, matters func(model.Problem) bool) {
	seen := map[model.Problem]bool{}
	for _, p := range cl.problems {
		// A chart's output, which is what one analyses, is yet to be admitted.
		refused := p.Reason == kube.NotAdmitted && c.Name() != "analyse"
		if !seen[p] && (matters == nil || matters(p) || unreadable(p) || refused) {
			fmt.Fprintln(c.ErrOrStderr(), "problem:", p)
		}
		seen[p] = true
	}
}

// unreadable is a Problem of the input itself: part of it was left out.
func unreadable(p model.Problem) bool {
	return slices.Contains([]string{"UnreadableDocument", "UnreadableFile", "NoManifests"}, p.Reason)
}

// needRoot is for commands that look into the kernel.
func needRoot(what string) error {
	if os.Geteuid() != 0 {
		return errors.New(what + " needs root (CAP_NET_ADMIN)")
	}
	return nil
}

func printJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(v)
}
