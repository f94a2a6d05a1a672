package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"fairway/lab/cluster"
	"fairway/lab/state"
	"fairway/lab/topology"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

var errOrder = errors.New("only --name and --state-root may stand before this command")

// place says which lab a command is about.
type place struct{ name, root string }

func (p *place) addFlags(fs *pflag.FlagSet) {
	fs.StringVar(&p.name, "name", defaultName(), "the lab's `name`; labs of different names run side by side ($FAIRWAY_LAB)")
	fs.StringVar(&p.root, "state-root", defaultRoot(), "`directory` of all labs ($FAIRWAY_LAB_ROOT)")
}

func (p *place) dir() state.Dir { return state.Dir{Root: p.root, Name: p.name} }

func (p *place) lab() (cluster.Lab, error) {
	if err := state.CheckName(p.name); err != nil {
		return cluster.Lab{}, err
	}
	root, err := filepath.Abs(p.root)
	if err != nil {
		return cluster.Lab{}, err
	}
	p.root = root
	return cluster.Lab{Dir: p.dir(), Out: cluster.NewProgress(os.Stderr)}, nil
}

func defaultName() string { return orElse(os.Getenv("FAIRWAY_LAB"), "lab") }

func defaultRoot() string { return orElse(os.Getenv("FAIRWAY_LAB_ROOT"), state.DefaultRoot) }

func orElse(s, other string) string {
	if s == "" {
		return other
	}
	return s
}

func upCommand(where *place) *cobra.Command {
	var o cluster.Options
	var family, ports string
	var noWait bool
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Bring a lab up and wait until its nodes and Fairway are ready",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			lab, err := where.lab()
			if err != nil {
				return err
			}
			o.Wait = !noWait
			if err := checkUp(&o, family, ports); err != nil {
				return err
			}
			if err := lab.Up(cmd.Context(), o); err != nil {
				return err
			}
			lab.Out.Say("lab %s is up", lab.Dir.Name)
			return lab.Status(cmd.Context(), cmd.OutOrStdout())
		},
	}
	f := cmd.Flags()
	f.IntVar(&o.Nodes, "nodes", 3, "`number` of nodes")
	f.StringVar(&o.ProxyMode, "proxy-mode", "", "service proxy `mode`: nftables, iptables, ipvs, userspace or ebpf (default the configuration file's, else nftables)")
	f.StringVar(&family, "family", "ipv4", "IP `family`: ipv4, ipv6 or dual")
	f.StringVar(&o.Config, "config", "", "Fairway's configuration `file`")
	f.StringVar(&o.Images, "images", "", "map `file` from images to programs of this machine, used before the built-in one")
	f.StringVar(&o.Peer, "peer", "", "run `kube-proxy` of the same version instead of Fairway (no DNS, no Ingress then)")
	f.StringVar(&o.Fairway, "fairway", "daemonset", "how Fairway runs: `daemonset` (deploy/fairway.yaml), process (beside the kubelet) or none")
	f.StringVar(&ports, "ports", "", "loopback `ports` of this machine, as api=6443,http=8080,https=8443; free ones by default")
	f.BoolVar(&noWait, "no-wait", false, "return when the API server is ready")
	return cmd
}

func checkUp(o *cluster.Options, family, ports string) (err error) {
	if o.Family, err = topology.ParseFamily(family); err != nil {
		return err
	}
	if o.Ports, err = cluster.ParsePorts(ports); err != nil {
		return err
	}
	switch {
	case o.Nodes < 0 || o.Nodes > topology.MaxNodes:
		return fmt.Errorf("nodes: want 0 to %d", topology.MaxNodes)
	case o.Peer != "" && o.Peer != "kube-proxy":
		return fmt.Errorf("peer %q: only kube-proxy is known", o.Peer)
	case o.Fairway != "daemonset" && o.Fairway != "process" && o.Fairway != "none":
		return fmt.Errorf("fairway %q: want daemonset, process or none", o.Fairway)
	}
	if o.Peer != "" {
		o.Fairway = "none"
	}
	return nil
}

func downCommand(where *place) *cobra.Command {
	return &cobra.Command{
		Use:   "down",
		Short: "Remove the lab with its processes, namespaces and files",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			lab, err := where.lab()
			if err != nil {
				return err
			}
			if err := lab.Down(); err != nil {
				return err
			}
			lab.Out.Say("lab %s is gone", lab.Dir.Name)
			return nil
		},
	}
}

func statusCommand(where *place) *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Show what the lab is made of, what runs and how to reach it",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			lab, err := where.lab()
			if err != nil {
				return err
			}
			return lab.Status(cmd.Context(), cmd.OutOrStdout())
		},
	}
}

func listCommand(where *place) *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the labs of this machine",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			for _, name := range state.List(where.root) {
				lab := cluster.Lab{Dir: state.Dir{Root: where.root, Name: name}}
				word := "not running"
				if lab.Running() {
					word = "running"
				}
				fmt.Fprintf(cmd.OutOrStdout(), "%s\t%s\n", name, word)
			}
			return nil
		},
	}
}

func execCommand(where *place) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "exec PLACE -- COMMAND...",
		Short: "Run a command on a node, on client or router, or in fabric",
		Long: `Run a command in one of the lab's places.

  node1, node2, ...  on the node: its network, processes, mounts and host name
  client             in the network of a host outside the cluster, on the LAN
  router             in the network of a second host there
  fabric             in the network of the LAN's bridge, where the control plane is

In all of them "kubectl" is there and set up. The exit code is the command's.`,
		Args: cobra.MinimumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			lab, err := where.lab()
			if err != nil {
				return err
			}
			argv := args[1:]
			if argv[0] == "--" {
				argv = argv[1:]
			}
			if len(argv) == 0 {
				return errors.New("exec: no command")
			}
			code, err := lab.Exec(args[0], argv)
			if err == nil && code != 0 {
				return exitCode(code)
			}
			return err
		},
	}
	cmd.Flags().SetInterspersed(false)
	return cmd
}

func addNodeCommand(where *place) *cobra.Command {
	return &cobra.Command{
		Use:   "add-node",
		Short: "Add the next node to the lab",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			lab, err := where.lab()
			if err != nil {
				return err
			}
			name, err := lab.AddNode(cmd.Context())
			if err == nil {
				fmt.Fprintln(cmd.OutOrStdout(), name)
			}
			return err
		},
	}
}

func stopNodeCommand(where *place) *cobra.Command {
	return &cobra.Command{
		Use:   "stop-node NODE|control-plane",
		Short: "Power a node off, as if its plug were pulled, or the control plane",
		Long: `Power a node off, as if its plug were pulled: everything on it ends at once, and
the cluster has to notice by itself.

  stop-node node2
  stop-node control-plane    kill -9 of etcd, kube-apiserver, kube-controller-manager
                             and kube-scheduler; etcd's data is kept for start-node`,
		Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			lab, err := where.lab()
			if err != nil {
				return err
			}
			return lab.StopNode(args[0])
		},
	}
}

func startNodeCommand(where *place) *cobra.Command {
	return &cobra.Command{
		Use:   "start-node NODE|control-plane",
		Short: "Power a node, or the control plane, on again and wait until it is ready",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			lab, err := where.lab()
			if err != nil {
				return err
			}
			return lab.StartNode(cmd.Context(), args[0])
		},
	}
}

func logsCommand(where *place) *cobra.Command {
	var follow bool
	cmd := &cobra.Command{
		Use:   "logs [PROCESS]",
		Short: "Print a process' log: node1, control-plane, fabric, ...; without a name, list them",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			lab, err := where.lab()
			if err != nil {
				return err
			}
			if len(args) == 0 {
				return listLogs(cmd.OutOrStdout(), lab.Dir)
			}
			return printLog(cmd, lab.Dir.Log(args[0]), follow)
		},
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on as the log grows")
	return cmd
}

func listLogs(out io.Writer, dir state.Dir) error {
	files, err := filepath.Glob(dir.Log("*"))
	for _, f := range files {
		fmt.Fprintln(out, strings.TrimSuffix(filepath.Base(f), ".log"))
	}
	return err
}

func printLog(cmd *cobra.Command, file string, follow bool) error {
	f, err := os.Open(file)
	if err != nil {
		return fmt.Errorf("no such log (`fairway-lab logs` lists them): %w", err)
	}
	defer f.Close()
	for {
		if _, err := io.Copy(cmd.OutOrStdout(), f); err != nil {
			return err
		}
		if !follow {
			return nil
		}
		select {
		case <-cmd.Context().Done():
			return nil
		case <-time.After(200 * time.Millisecond):
		}
	}
}
