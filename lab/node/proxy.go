package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"
)

var errStopped = errors.New("stopped without an error")

func orStopped(err error) error {
	if err == nil {
		return errStopped
	}
	return err
}

// proxyCommand is the service proxy the node runs as a plain process, nil when
// it comes as a DaemonSet or not at all.
func proxyCommand(c Config) []string {
	switch {
	case c.Lab.Peer == "kube-proxy":
		// The zeros keep it from writing limits that hold for the whole machine.
		return []string{c.Lab.Tools.Lab, "kube-proxy",
			"--kubeconfig=" + c.Dir.PKI("proxy.kubeconfig"),
			"--proxy-mode=" + c.Lab.ProxyMode,
			"--cluster-cidr=" + c.Lab.Family.PodRange(),
			"--hostname-override=" + c.Name(),
			"--conntrack-max-per-core=0", "--conntrack-min=0",
			"--conntrack-tcp-timeout-established=0", "--conntrack-tcp-timeout-close-wait=0"}
	case c.Lab.Fairway == "process":
		cmd := []string{c.Lab.Tools.Fairway, "run",
			"--kubeconfig", c.Dir.InsideKubeconfig(),
			"--node", c.Name(), "--proxy-mode", c.Lab.ProxyMode}
		if c.Lab.Config != "" {
			cmd = append(cmd, "--config", c.Lab.Config)
		}
		return cmd
	}
	return nil
}

// keepRunning starts argv again a second after it ends, as a service manager
// would. What it prints goes to its own file among the lab's logs.
func keepRunning(ctx context.Context, c Config, argv []string) error {
	log, err := os.OpenFile(c.Dir.Log(c.Name()+"-proxy"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	for {
		cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
		cmd.Stdout, cmd.Stderr = log, log
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		err := cmd.Run()
		fmt.Fprintf(log, "fairway-lab: %s ended: %v\n", argv[0], orStopped(err))
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Second):
		}
	}
}
