package node

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"fairway/lab/cgroup"

	"golang.org/x/sys/unix"
)

// prepare gives the node its own view of the machine: a mount namespace whose
// changes nobody else sees, its own processes in /proc, and its own /run and
// /var/log. The process must already be in fresh mount, process and host name
// namespaces.
func prepare(c Config) error {
	own, err := cgroup.Join(cgroup.Name(c.Dir.Name, c.Name()))
	if err != nil {
		// Of what a node runs, only the eBPF mode misses it, and says so.
		fmt.Fprintf(os.Stderr, "%s: no cgroup of its own: %v\n", c.Name(), err)
	}
	// Private first, so that no mount of the node shows up on the machine;
	// shared then, so that containers can see mounts made later.
	if err := mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	if err := mount("", "/", "", unix.MS_REC|unix.MS_SHARED, ""); err != nil {
		return err
	}
	if err := mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return err
	}
	if own != "" {
		if err := showKernel(own); err != nil {
			return err
		}
	}
	if !strings.HasPrefix(c.Dir.Path()+"/", "/run/") {
		if err := mount("tmpfs", "/run", "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=755"); err != nil {
			return err
		}
	}
	for _, dir := range []string{"log", "cri", "kubelet", "kubelet-pki", "volume-plugins"} {
		if err := os.MkdirAll(c.path(dir), 0o755); err != nil {
			return fmt.Errorf("%s: %w", c.Name(), err)
		}
	}
	if err := mount(c.path("log"), "/var/log", "", unix.MS_BIND, ""); err != nil {
		return err
	}
	// What containers write lies in memory and goes with the node.
	if err := mount("tmpfs", c.path("cri"), "tmpfs", unix.MS_NODEV, "mode=755"); err != nil {
		return err
	}
	// The socket of an earlier run of this node, before its power went.
	if err := os.Remove(c.socket()); err != nil && !os.IsNotExist(err) {
		return fmt.Errorf("%s: %w", c.Name(), err)
	}
	if err := unix.Sethostname([]byte(c.Name())); err != nil {
		return fmt.Errorf("%s: set host name: %w", c.Name(), err)
	}
	if err := os.WriteFile(c.path("resolv.conf"), []byte(resolvConf(c)), 0o644); err != nil {
		return err
	}
	return showResolvConf(c.path("resolv.conf"))
}

// showKernel makes the node's own cgroup what it finds as the root of all cgroups, and
// gives it a place of its own for pinned eBPF maps, as any machine has.
func showKernel(cgroup string) error {
	if err := mount(cgroup, "/sys/fs/cgroup", "", unix.MS_BIND, ""); err != nil {
		return err
	}
	if err := mount("bpf", "/sys/fs/bpf", "bpf", 0, "mode=0700"); err != nil {
		fmt.Fprintf(os.Stderr, "no place for eBPF maps: %v\n", err)
	}
	return nil
}

// showResolvConf makes file what the node's own programs find as
// /etc/resolv.conf, which on the machine may be a link into the /run that the
// node does not see.
func showResolvConf(file string) error {
	target := "/etc/resolv.conf"
	if link, err := os.Readlink(target); err == nil {
		if !filepath.IsAbs(link) {
			link = filepath.Join("/etc", link)
		}
		target = link
	}
	if _, err := os.Stat(target); os.IsNotExist(err) {
		if !strings.HasPrefix(target, "/run/") {
			return nil // a machine without one; nothing is put on its disk
		}
		if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(target, nil, 0o644); err != nil {
			return err
		}
	}
	return mount(file, target, "", unix.MS_BIND, "")
}

// resolvConf names the LAN's resolver, which knows the names of one file.
func resolvConf(c Config) string {
	return fmt.Sprintf("nameserver %s\n", c.Lab.Family.Fabric()[0])
}

func mount(source, target, fstype string, flags uintptr, data string) error {
	if err := unix.Mount(source, target, fstype, flags, data); err != nil {
		return fmt.Errorf("mount %s: %w", target, err)
	}
	return nil
}
