package cri

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"time"

	"fairway/lab/cri/spec"
	"fairway/lab/hostport"
	"fairway/lab/podnet"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// sandbox is one Pod: the process that holds its namespaces, its connection and its directory.
type sandbox struct {
	id      string
	config  *runtimeapi.PodSandboxConfig
	created time.Time
	dir     string
	holder  *process
	link    *podnet.Link // nil for a Pod in the node's network

	mu      sync.Mutex
	stopped bool
}

func (p *sandbox) options() *runtimeapi.NamespaceOption {
	return p.config.GetLinux().GetSecurityContext().GetNamespaceOptions()
}

func (p *sandbox) onNodeNetwork() bool {
	return p.options().GetNetwork() == runtimeapi.NamespaceMode_NODE
}
func (p *sandbox) onNodeIPC() bool { return p.options().GetIpc() == runtimeapi.NamespaceMode_NODE }
func (p *sandbox) onNodePID() bool { return p.options().GetPid() == runtimeapi.NamespaceMode_NODE }

// shm is the directory all the Pod's containers have as /dev/shm.
func (p *sandbox) shm() string {
	if p.onNodeIPC() {
		return "/dev/shm"
	}
	return filepath.Join(p.dir, "shm")
}

func (s *server) RunPodSandbox(
	_ context.Context, req *runtimeapi.RunPodSandboxRequest,
) (*runtimeapi.RunPodSandboxResponse, error) {
	p := &sandbox{id: newID(), config: req.GetConfig(), created: time.Now()}
	p.dir = filepath.Join(s.cfg.StateDir, "pods", p.id)
	if handler := req.GetRuntimeHandler(); handler != "" {
		return nil, status.Errorf(codes.InvalidArgument, "no runtime handler %q", handler)
	}
	if err := s.makeSandbox(p); err != nil {
		return nil, errors.Join(fmt.Errorf("pod %s: %w", podName(p.config), err), s.stopSandbox(p), s.forgetSandbox(p))
	}
	s.mu.Lock()
	s.sandboxes[p.id] = p
	s.mu.Unlock()
	return &runtimeapi.RunPodSandboxResponse{PodSandboxId: p.id}, nil
}

func podName(c *runtimeapi.PodSandboxConfig) string {
	return c.GetMetadata().GetNamespace() + "/" + c.GetMetadata().GetName()
}

func (s *server) makeSandbox(p *sandbox) error {
	if !p.onNodeNetwork() && !s.net.Ready() {
		return errors.New("the node has no pod CIDR yet")
	}
	if err := os.Mkdir(p.dir, 0o755); err != nil {
		return err
	}
	if dir := p.config.GetLogDirectory(); dir != "" {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	if !p.onNodeIPC() {
		if err := mountShm(p.shm()); err != nil {
			return err
		}
	}
	if err := s.startHolder(p); err != nil {
		return err
	}
	if p.onNodeNetwork() {
		return nil
	}
	if err := s.connect(p); err != nil {
		return err
	}
	return s.openPorts(p)
}

func mountShm(dir string) error {
	if err := os.Mkdir(dir, 0o777); err != nil {
		return err
	}
	flags := uintptr(unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC)
	if err := unix.Mount("shm", dir, "tmpfs", flags, "mode=1777,size=64m"); err != nil {
		return fmt.Errorf("mount shm: %w", err)
	}
	return nil
}

func (s *server) startHolder(p *sandbox) error {
	flags := uintptr(unix.CLONE_NEWNS)
	sp := spec.Spec{Mode: spec.Sandbox, Sysctls: map[string]string{}, Root: &spec.Root{Scratch: s.scratch()}}
	if !p.onNodePID() {
		flags |= unix.CLONE_NEWPID
	}
	if !p.onNodeIPC() {
		flags |= unix.CLONE_NEWIPC
	}
	if !p.onNodeNetwork() {
		flags |= unix.CLONE_NEWNET | unix.CLONE_NEWUTS
		sp.Hostname = p.config.GetHostname()
		defaults := podSysctls()
		for name := range defaults {
			sp.Quiet = append(sp.Quiet, name)
		}
		maps.Copy(sp.Sysctls, defaults)
	}
	maps.Copy(sp.Sysctls, p.config.GetLinux().GetSysctls())
	holder, err := s.start(launch{spec: sp, flags: flags})
	if err != nil {
		return fmt.Errorf("sandbox: %w", err)
	}
	p.holder = holder
	return nil
}

// podSysctls is what today's runtimes give every Pod: ping and low ports for all users; and no wait for duplicate
// address detection on addresses that only we hand out.
func podSysctls() map[string]string {
	return map[string]string{
		"net.ipv4.ip_unprivileged_port_start":        "0",
		"net.ipv4.ping_group_range":                  "0 2147483647",
		"net.ipv6.conf.all.accept_dad":               "0",
		"net.ipv6.conf.default.accept_dad":           "0",
		"net.ipv6.conf.default.accept_ra":            "0",
		"net.ipv6.conf.default.router_solicitations": "0",
	}
}

// connect puts the Pod on the network. The file of its namespace is needed only while that happens.
func (s *server) connect(p *sandbox) error {
	ns, err := os.Open(p.nsPath("net"))
	if err != nil {
		return err
	}
	defer ns.Close()
	link, err := s.net.Attach("veth"+p.id[:11], int(ns.Fd()))
	if err != nil {
		return err
	}
	p.link = &link
	return nil
}

// openPorts opens the Pod's ports on the node; the kubelet also lists ports without a host port.
func (s *server) openPorts(p *sandbox) error {
	pod := hostport.Pod{Device: p.link.Host, IPs: p.link.IPs}
	for _, m := range p.config.GetPortMappings() {
		if m.GetHostPort() == 0 {
			continue
		}
		port := hostport.Port{HostPort: uint16(m.GetHostPort()), PodPort: uint16(m.GetContainerPort())}
		switch m.GetProtocol() {
		case runtimeapi.Protocol_TCP:
			port.Protocol = unix.IPPROTO_TCP
		case runtimeapi.Protocol_UDP:
			port.Protocol = unix.IPPROTO_UDP
		case runtimeapi.Protocol_SCTP:
			port.Protocol = unix.IPPROTO_SCTP
		}
		if text := m.GetHostIp(); text != "" {
			ip, err := netip.ParseAddr(text)
			if err != nil {
				return fmt.Errorf("host port %d: %w", port.HostPort, err)
			}
			port.HostIP = ip
		}
		pod.Ports = append(pod.Ports, port)
	}
	return s.ports.Add(p.id, pod)
}

func (p *sandbox) nsPath(kind string) string {
	return fmt.Sprintf("/proc/%d/ns/%s", p.holder.cmd.Process.Pid, kind)
}

// scratch is the empty directory over which every cinit mounts its own tmpfs, in its own mount namespace.
func (s *server) scratch() string { return filepath.Join(s.cfg.StateDir, "scratch") }

func (s *server) StopPodSandbox(
	_ context.Context, req *runtimeapi.StopPodSandboxRequest,
) (*runtimeapi.StopPodSandboxResponse, error) {
	p, err := s.sandbox(req.GetPodSandboxId())
	if err != nil {
		return &runtimeapi.StopPodSandboxResponse{}, nil // stopping what is gone is no error in the CRI
	}
	for _, c := range s.containersOf(p.id) {
		if err := c.stop(0); err != nil {
			return nil, err
		}
	}
	if err := s.stopSandbox(p); err != nil {
		return nil, fmt.Errorf("pod %s: %w", podName(p.config), err)
	}
	return &runtimeapi.StopPodSandboxResponse{}, nil
}

// stopSandbox releases addresses, ports and namespaces. It may be repeated, and called for a sandbox half made.
func (s *server) stopSandbox(p *sandbox) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopped {
		return nil
	}
	if err := s.ports.Remove(p.id); err != nil {
		return err
	}
	if p.link != nil {
		if err := s.net.Detach(*p.link); err != nil {
			return err
		}
	}
	if p.holder != nil {
		if err := p.holder.kill(unix.SIGKILL); err != nil {
			return err
		}
		<-p.holder.done
	}
	p.stopped = true
	return nil
}

// handle is a pidfd of the process that holds the namespaces, for the caller to close.
func (p *sandbox) handle() (*os.File, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopped {
		return nil, status.Errorf(codes.FailedPrecondition, "pod %s: its sandbox has ended", podName(p.config))
	}
	return p.holder.handle()
}

func (p *sandbox) ready() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopped {
		return false
	}
	select {
	case <-p.holder.done:
		return false
	default:
		return true
	}
}

func (s *server) RemovePodSandbox(
	ctx context.Context, req *runtimeapi.RemovePodSandboxRequest,
) (*runtimeapi.RemovePodSandboxResponse, error) {
	id := req.GetPodSandboxId()
	p, err := s.sandbox(id)
	if err != nil {
		return &runtimeapi.RemovePodSandboxResponse{}, nil
	}
	if _, err := s.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: id}); err != nil {
		return nil, err
	}
	for _, c := range s.containersOf(id) {
		s.forgetContainer(c)
	}
	if err := s.forgetSandbox(p); err != nil {
		return nil, fmt.Errorf("pod %s: %w", podName(p.config), err)
	}
	return &runtimeapi.RemovePodSandboxResponse{}, nil
}

func (s *server) forgetSandbox(p *sandbox) error {
	if err := unmountBelow(p.dir); err != nil {
		return err
	}
	if err := os.RemoveAll(p.dir); err != nil {
		return err
	}
	p.mu.Lock()
	if p.holder != nil {
		p.holder.close()
	}
	p.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.sandboxes, p.id)
	return nil
}
