package cri

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"fairway/lab/cri/logfile"
	"fairway/lab/images"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// container is one container, from its creation to its removal.
type container struct {
	id      string
	pod     *sandbox
	config  *runtimeapi.ContainerConfig
	image   images.Image
	created time.Time

	mu       sync.Mutex
	starting bool
	proc     *process
	io       *plumbing
	log      *logfile.Log
	view     string // the container's mount namespace, when it shares a process namespace
	started  time.Time
	finished time.Time
	exit     int
	reason   string
	message  string
	done     chan struct{} // closed when the container has ended and its output is written
}

func (s *server) CreateContainer(
	_ context.Context, req *runtimeapi.CreateContainerRequest,
) (*runtimeapi.CreateContainerResponse, error) {
	p, err := s.sandbox(req.GetPodSandboxId())
	if err != nil {
		return nil, err
	}
	if !p.ready() {
		return nil, status.Errorf(codes.FailedPrecondition, "pod %s: its sandbox has ended", podName(p.config))
	}
	config := req.GetConfig()
	image, err := s.cfg.Images.Find(config.GetImage().GetImage())
	if err != nil {
		return nil, status.Error(codes.NotFound, err.Error())
	}
	c := &container{id: newID(), pod: p, config: config, image: image, created: time.Now(), done: make(chan struct{})}
	if _, err := c.argv(); err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	s.mu.Lock()
	s.containers[c.id] = c
	s.mu.Unlock()
	return &runtimeapi.CreateContainerResponse{ContainerId: c.id}, nil
}

func (c *container) name() string {
	return podName(c.pod.config) + "/" + c.config.GetMetadata().GetName()
}

func (c *container) logPath() string {
	if c.config.GetLogPath() == "" || c.pod.config.GetLogDirectory() == "" {
		return ""
	}
	return filepath.Join(c.pod.config.GetLogDirectory(), c.config.GetLogPath())
}

func (s *server) StartContainer(
	_ context.Context, req *runtimeapi.StartContainerRequest,
) (*runtimeapi.StartContainerResponse, error) {
	c, err := s.container(req.GetContainerId())
	if err != nil {
		return nil, err
	}
	if !c.claim() {
		return nil, status.Errorf(codes.FailedPrecondition, "container %s was started before", c.name())
	}
	if err := s.startContainer(c); err != nil {
		c.failed(err)
		return nil, fmt.Errorf("container %s: %w", c.name(), err)
	}
	return &runtimeapi.StartContainerResponse{}, nil
}

// claim lets one caller start the container, once.
func (c *container) claim() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.starting {
		return false
	}
	c.starting = true
	return true
}

func (s *server) startContainer(c *container) error {
	log, err := logfile.Open(c.logPath())
	if err != nil {
		return err
	}
	pipes, err := openPipes(c.config)
	if err != nil {
		log.Close()
		return err
	}
	l, err := s.containerLaunch(c)
	defer closeFiles(l.join, l.pidNS)
	if err != nil {
		log.Close()
		pipes.closeAll()
		return err
	}
	l.stdin, l.stdout, l.stderr = pipes.childIn, pipes.childOut, pipes.childErr
	proc, err := s.start(l)
	pipes.closeChild()
	if err != nil {
		log.Close()
		pipes.closeAll()
		return err
	}
	flow := newPlumbing(pipes, proc.master, log)
	view := ""
	if l.flags&unix.CLONE_NEWPID == 0 {
		view = mountView(proc.cmd.Process.Pid)
	}
	c.mu.Lock()
	c.proc, c.io, c.log, c.started, c.view = proc, flow, log, time.Now(), view
	c.mu.Unlock()
	flow.run()
	go c.watch()
	return nil
}

func (c *container) failed(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	c.started, c.finished = now, now
	c.exit, c.reason, c.message = 128, "StartError", err.Error()
	close(c.done)
}

// watch waits for the end, lets the output drain and records what happened.
func (c *container) watch() {
	<-c.proc.done
	at := time.Now()
	killRest(c.view)
	c.io.finish(time.Second)
	c.log.Close()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.finished, c.exit = at, c.proc.exit()
	c.reason = "Completed"
	if c.exit != 0 {
		c.reason = "Error"
	}
	c.proc.close()
	close(c.done)
}

// state is the container's state as the CRI names it. The caller holds c.mu.
func (c *container) state() runtimeapi.ContainerState {
	switch {
	case !c.finished.IsZero():
		return runtimeapi.ContainerState_CONTAINER_EXITED
	case c.proc != nil:
		return runtimeapi.ContainerState_CONTAINER_RUNNING
	}
	return runtimeapi.ContainerState_CONTAINER_CREATED
}

// running returns the process of a running container.
func (c *container) running() (*process, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state() != runtimeapi.ContainerState_CONTAINER_RUNNING {
		return nil, status.Errorf(codes.FailedPrecondition, "container %s is not running", c.name())
	}
	return c.proc, nil
}

// handle is a pidfd of a running container's first process, for the caller to close.
func (c *container) handle() (*os.File, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state() != runtimeapi.ContainerState_CONTAINER_RUNNING {
		return nil, status.Errorf(codes.FailedPrecondition, "container %s is not running", c.name())
	}
	return c.proc.handle()
}

func (s *server) StopContainer(
	_ context.Context, req *runtimeapi.StopContainerRequest,
) (*runtimeapi.StopContainerResponse, error) {
	c, err := s.container(req.GetContainerId())
	if err != nil {
		return &runtimeapi.StopContainerResponse{}, nil
	}
	if err := c.stop(time.Duration(req.GetTimeout()) * time.Second); err != nil {
		return nil, err
	}
	return &runtimeapi.StopContainerResponse{}, nil
}

// stop asks the container to end, waits at most grace, then ends it. It returns when the container is gone.
func (c *container) stop(grace time.Duration) error {
	proc, err := c.running()
	if err != nil {
		return nil // ended, or never started
	}
	if grace > 0 {
		if err := proc.kill(c.stopSignal()); err != nil {
			return fmt.Errorf("container %s: stop: %w", c.name(), err)
		}
		select {
		case <-c.done:
			return nil
		case <-time.After(grace):
		}
	}
	if err := proc.kill(unix.SIGKILL); err != nil {
		return fmt.Errorf("container %s: kill: %w", c.name(), err)
	}
	<-c.done
	return nil
}

func (c *container) stopSignal() unix.Signal {
	name := c.image.StopSignal
	if sig := c.config.GetStopSignal(); sig != runtimeapi.Signal_SIGNAL_RUNTIME_DEFAULT {
		name = strings.TrimPrefix(sig.String(), "SIGNAL_")
	}
	if sig := unix.SignalNum(name); sig != 0 {
		return sig
	}
	return unix.SIGTERM
}

func (s *server) RemoveContainer(
	_ context.Context, req *runtimeapi.RemoveContainerRequest,
) (*runtimeapi.RemoveContainerResponse, error) {
	c, err := s.container(req.GetContainerId())
	if err != nil {
		return &runtimeapi.RemoveContainerResponse{}, nil
	}
	if err := c.stop(0); err != nil {
		return nil, err
	}
	s.forgetContainer(c)
	return &runtimeapi.RemoveContainerResponse{}, nil
}

func (s *server) forgetContainer(c *container) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.containers, c.id)
}

func (s *server) ReopenContainerLog(
	_ context.Context, req *runtimeapi.ReopenContainerLogRequest,
) (*runtimeapi.ReopenContainerLogResponse, error) {
	c, err := s.container(req.GetContainerId())
	if err != nil {
		return nil, err
	}
	if _, err := c.running(); err != nil {
		return nil, err
	}
	if err := c.log.Reopen(); err != nil {
		return nil, fmt.Errorf("container %s: %w", c.name(), err)
	}
	return &runtimeapi.ReopenContainerLogResponse{}, nil
}
