package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"fairway/lab/cri/spec"

	"golang.org/x/sys/unix"
)

// source is a detached copy of a mount of the node, waiting for its place.
type source struct {
	fd     int
	dir    bool
	target string
	ro     bool
	deep   bool
}

// openSources runs before / is made private, so that a volume with propagation in both directions stays a peer of the
// node's mount.
func openSources(r *spec.Root) ([]source, error) {
	var out []source
	for _, name := range []string{"null", "zero", "full", "random", "urandom", "tty"} {
		s, err := openSource(spec.Mount{Source: "/dev/" + name, Target: "/dev/" + name})
		if err != nil {
			return nil, err
		}
		out = append(out, s)
	}
	shm := spec.Mount{Source: r.Shm, Target: "/dev/shm"}
	for _, m := range append([]spec.Mount{shm}, r.Mounts...) {
		s, err := openSource(m)
		if err != nil {
			return nil, err
		}
		out = append(out, s)
	}
	return out, nil
}

func openSource(m spec.Mount) (source, error) {
	info, err := os.Stat(m.Source)
	if err != nil {
		return source{}, fmt.Errorf("mount at %s: %w", m.Target, err)
	}
	flags := uint(unix.OPEN_TREE_CLONE | unix.OPEN_TREE_CLOEXEC | unix.AT_RECURSIVE)
	fd, err := unix.OpenTree(unix.AT_FDCWD, m.Source, flags)
	if err != nil {
		return source{}, fmt.Errorf("mount at %s: open %s: %w", m.Target, m.Source, err)
	}
	attr := unix.MountAttr{}
	switch m.Propagation {
	case spec.Private:
		attr.Propagation = unix.MS_PRIVATE
	case spec.FromHost:
		attr.Propagation = unix.MS_SLAVE
	case spec.Both:
		attr.Propagation = unix.MS_SHARED
	}
	if err := setAttr(fd, attr, true); err != nil {
		return source{}, fmt.Errorf("mount at %s: propagation: %w", m.Target, err)
	}
	return source{fd: fd, dir: info.IsDir(), target: m.Target, ro: m.ReadOnly, deep: m.Recursive}, nil
}

func setAttr(fd int, attr unix.MountAttr, recursive bool) error {
	flags := uint(unix.AT_EMPTY_PATH)
	if recursive {
		flags |= unix.AT_RECURSIVE
	}
	return unix.MountSetattr(fd, "", flags, &attr)
}

func placeSources(sources []source) error {
	for _, s := range sources {
		if err := s.place(); err != nil {
			return fmt.Errorf("mount at %s: %w", s.target, err)
		}
	}
	return nil
}

func (s source) place() error {
	if err := makeMountPoint(s.target, s.dir); err != nil {
		return err
	}
	if s.ro {
		if err := setAttr(s.fd, unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}, s.deep); err != nil {
			return fmt.Errorf("read-only: %w", err)
		}
	}
	err := unix.MoveMount(s.fd, "", unix.AT_FDCWD, s.target, unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_SYMLINKS)
	if err != nil {
		return err
	}
	return unix.Close(s.fd)
}

func makeMountPoint(path string, dir bool) error {
	if _, err := os.Stat(path); err == nil {
		return nil
	}
	if dir {
		return os.MkdirAll(path, 0o755)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	return f.Close()
}

// mountKernel mounts what the kernel offers: /proc of this process namespace, /sys of this network namespace, /dev.
func mountKernel(r *spec.Root) error {
	quiet := uintptr(unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC)
	sys := quiet
	if !r.Privileged {
		sys |= unix.MS_RDONLY
	}
	table := []struct {
		kind, at, data string
		flags          uintptr
	}{
		{"proc", "/proc", "", quiet},
		{"sysfs", "/sys", "", sys},
		{"tmpfs", "/dev", "mode=0755", unix.MS_NOSUID},
		{"devpts", "/dev/pts", "newinstance,ptmxmode=0666,mode=0620,gid=5", unix.MS_NOSUID | unix.MS_NOEXEC},
		{"mqueue", "/dev/mqueue", "", quiet},
	}
	for _, m := range table {
		if err := os.MkdirAll(m.at, 0o755); err != nil {
			return err
		}
		err := unix.Mount(m.kind, m.at, m.kind, m.flags, m.data)
		if errors.Is(err, unix.ENODEV) && m.kind == "mqueue" {
			continue // a kernel without POSIX message queues
		}
		if err != nil {
			return fmt.Errorf("mount %s: %w", m.at, err)
		}
	}
	return linkDevices()
}

func linkDevices() error {
	for name, target := range map[string]string{
		"fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1",
		"stderr": "/proc/self/fd/2", "ptmx": "pts/ptmx", "core": "/proc/kcore",
	} {
		if err := os.Symlink(target, "/dev/"+name); err != nil {
			return err
		}
	}
	return nil
}

// closeRoot hides and locks what the container may not touch; it comes last because volumes needed their mount points.
func closeRoot(r *spec.Root) error {
	for _, path := range r.Locked {
		if err := lock(path); err != nil {
			return fmt.Errorf("lock %s: %w", path, err)
		}
	}
	for _, path := range r.Masked {
		if err := mask(path); err != nil {
			return fmt.Errorf("mask %s: %w", path, err)
		}
	}
	if r.ReadOnly {
		return lockRoot()
	}
	return nil
}

func lock(path string) error {
	err := unix.Mount(path, path, "", unix.MS_BIND|unix.MS_REC, "")
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}
	return unix.MountSetattr(unix.AT_FDCWD, path, 0, &attr)
}

func mask(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return nil // nothing there to hide
	}
	if info.IsDir() {
		return unix.Mount("tmpfs", path, "tmpfs", unix.MS_RDONLY, "size=0")
	}
	return unix.Mount("/dev/null", path, "", unix.MS_BIND, "")
}

// lockRoot makes the image part read-only: the root itself and the overlays of the machine's directories.
func lockRoot() error {
	for _, path := range []string{"/", "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc/alternatives", "/etc/ssl"} {
		attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}
		err := unix.MountSetattr(unix.AT_FDCWD, path, unix.AT_SYMLINK_NOFOLLOW, &attr)
		// EINVAL: not a mount of its own, so it went with "/".
		if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.EINVAL) {
			return fmt.Errorf("read-only %s: %w", path, err)
		}
	}
	return nil
}
