package cri

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"fairway/lab/cri/spec"

	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// containerLaunch turns what the kubelet asked for and what the image brings into a cinit spec. The caller closes the
// files in it, on error too.
func (s *server) containerLaunch(c *container) (launch, error) {
	sp, err := c.program(s)
	if err != nil {
		return launch{}, err
	}
	sp.Mode = spec.Run
	sp.TTY = c.config.GetTty()
	sp.Join = unix.CLONE_NEWNET | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC
	if sp.Root, err = s.containerRoot(c); err != nil {
		return launch{}, err
	}
	l := launch{spec: sp, flags: unix.CLONE_NEWNS}
	if l.join, err = c.pod.handle(); err != nil {
		return l, err
	}
	switch opts := c.config.GetLinux().GetSecurityContext().GetNamespaceOptions(); opts.GetPid() {
	case runtimeapi.NamespaceMode_NODE:
	case runtimeapi.NamespaceMode_POD:
		l.pidNS, err = c.pod.handle()
	case runtimeapi.NamespaceMode_TARGET:
		l.pidNS, err = s.targetPID(opts.GetTargetId())
	default:
		l.flags |= unix.CLONE_NEWPID
	}
	return l, err
}

// targetPID is for an ephemeral container that wants to see another one's processes.
func (s *server) targetPID(id string) (*os.File, error) {
	target, err := s.container(id)
	if err != nil {
		return nil, err
	}
	return target.handle()
}

// program is the part of the spec that an exec shares with its container: who runs what, with which rights.
func (c *container) program(s *server) (spec.Spec, error) {
	argv, err := c.argv()
	if err != nil {
		return spec.Spec{}, err
	}
	who, err := c.user()
	if err != nil {
		return spec.Spec{}, err
	}
	ctx := c.config.GetLinux().GetSecurityContext()
	sp := spec.Spec{
		Argv: argv, Env: c.env(s, who), Cwd: c.config.GetWorkingDir(),
		UID: who.uid, GID: who.gid, Groups: who.groups, NoNewPrivs: ctx.GetNoNewPrivs(),
	}
	if sp.Cwd == "" {
		sp.Cwd = c.image.Cwd
	}
	sp.Caps, err = capabilities(ctx)
	return sp, err
}

// argv follows the rule of Kubernetes: command replaces the entrypoint and drops the image's arguments, args replaces
// the arguments alone.
func (c *container) argv() ([]string, error) {
	command, args := c.config.GetCommand(), c.config.GetArgs()
	if len(command) == 0 {
		command = c.image.Entrypoint
		if len(args) == 0 {
			args = c.image.Cmd
		}
	}
	argv := slices.Concat(command, args)
	if len(argv) == 0 {
		return nil, fmt.Errorf("container %s: no command specified", c.name())
	}
	return argv, nil
}

func (c *container) env(s *server, who identity) []string {
	vars := map[string]string{
		"PATH":     "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"HOSTNAME": c.hostname(s),
		"HOME":     who.home,
	}
	if c.config.GetTty() {
		vars["TERM"] = "xterm"
	}
	maps.Copy(vars, c.image.Env)
	for _, kv := range c.config.GetEnvs() {
		vars[kv.GetKey()] = string(kv.GetValue())
	}
	env := make([]string, 0, len(vars))
	for _, key := range slices.Sorted(maps.Keys(vars)) {
		env = append(env, key+"="+vars[key])
	}
	return env
}

func (c *container) hostname(s *server) string {
	if name := c.pod.config.GetHostname(); name != "" {
		return name
	}
	return s.cfg.Node
}

func (s *server) containerRoot(c *container) (*spec.Root, error) {
	ctx := c.config.GetLinux().GetSecurityContext()
	root := &spec.Root{
		Scratch: s.scratch(), Tools: !c.image.Bare, ReadOnly: ctx.GetReadonlyRootfs(), Privileged: ctx.GetPrivileged(),
		Files: s.imageFiles(c), Shm: c.pod.shm(),
	}
	if !root.Privileged {
		root.Masked, root.Locked = ctx.GetMaskedPaths(), ctx.GetReadonlyPaths()
	}
	for _, at := range slices.Sorted(maps.Keys(c.image.Binds)) {
		source := strings.ReplaceAll(c.image.Binds[at], "{cinit}", s.cfg.Cinit)
		root.Mounts = append(root.Mounts, spec.Mount{Source: source, Target: at, ReadOnly: true})
	}
	for _, d := range c.config.GetDevices() {
		root.Mounts = append(root.Mounts, spec.Mount{Source: d.GetHostPath(), Target: d.GetContainerPath()})
	}
	volumes, err := volumeMounts(c.config.GetMounts())
	if err != nil {
		return nil, err
	}
	root.Mounts = append(root.Mounts, volumes...)
	return root, nil
}

// volumeMounts puts a volume before the ones inside it, whatever the order in the Pod.
func volumeMounts(list []*runtimeapi.Mount) ([]spec.Mount, error) {
	var out []spec.Mount
	for _, m := range list {
		if m.GetHostPath() == "" {
			return nil, fmt.Errorf("mount at %s: volumes made from images are not supported", m.GetContainerPath())
		}
		// A hostPath volume of no type may name what does not exist yet; then it is a directory.
		if _, err := os.Stat(m.GetHostPath()); errors.Is(err, os.ErrNotExist) {
			if err := os.MkdirAll(m.GetHostPath(), 0o755); err != nil {
				return nil, fmt.Errorf("mount at %s: %w", m.GetContainerPath(), err)
			}
		}
		out = append(out, spec.Mount{
			Source: m.GetHostPath(), Target: m.GetContainerPath(), ReadOnly: m.GetReadonly(),
			Recursive: m.GetRecursiveReadOnly(), Propagation: propagation(m.GetPropagation()),
		})
	}
	slices.SortStableFunc(out, func(a, b spec.Mount) int {
		return strings.Count(a.Target, "/") - strings.Count(b.Target, "/")
	})
	return out, nil
}

func propagation(p runtimeapi.MountPropagation) spec.Propagation {
	switch p {
	case runtimeapi.MountPropagation_PROPAGATION_HOST_TO_CONTAINER:
		return spec.FromHost
	case runtimeapi.MountPropagation_PROPAGATION_BIDIRECTIONAL:
		return spec.Both
	}
	return spec.Private
}
