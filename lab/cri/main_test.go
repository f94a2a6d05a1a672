package cri

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// insideEnv names the built cinit for the run inside the namespaces.
const insideEnv = "FAIRWAY_CRI_TEST_CINIT"

// serveEnv names the directory of a runtime that is to be served by this process, for a test that kills it.
const serveEnv = "FAIRWAY_CRI_TEST_SERVE"

// TestMain runs the tests again in a node of their own: fresh mount, process, network, host name and IPC namespaces.
func TestMain(m *testing.M) {
	if dir := os.Getenv(serveEnv); dir != "" {
		fmt.Fprintln(os.Stderr, serveAlone(dir))
		os.Exit(1)
	}
	if os.Getenv(insideEnv) != "" {
		if err := becomeNode(); err != nil {
			fmt.Fprintln(os.Stderr, "set up the node's namespaces:", err)
			os.Exit(1)
		}
		os.Exit(m.Run())
	}
	if os.Geteuid() != 0 {
		os.Exit(m.Run())
	}
	os.Exit(runInside())
}

func runInside() int {
	dir, err := os.MkdirTemp("", "cri-test")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	cinit := filepath.Join(dir, "cinit")
	build := exec.Command("go", "build", "-o", cinit, "fairway/lab/cmd/cinit")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build cinit: %v\n%s", err, out)
		return 1
	}
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Args[0] = os.Args[0]
	cmd.Env = append(os.Environ(), insideEnv+"="+cinit, "TMPDIR="+dir)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC,
	}
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return cmd.ProcessState.ExitCode()
}

// serveAlone is a node process: process 1 of its own process namespace.
func serveAlone(dir string) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	if err := unix.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return err
	}
	cfg, err := testConfig(dir)
	if err != nil {
		return err
	}
	return Serve(context.Background(), cfg)
}

func becomeNode() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make / private: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SHARED, ""); err != nil {
		return fmt.Errorf("make / shared: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	if err := unix.Sethostname([]byte("node1")); err != nil {
		return err
	}
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	if err := netlink.LinkSetUp(lo); err != nil {
		return err
	}
	// The node's own address, which in a lab is on its LAN interface.
	for _, text := range []string{"172.30.0.11/32", "fd00:30::11/128"} {
		addr, err := netlink.ParseAddr(text)
		if err != nil {
			return err
		}
		if err := netlink.AddrAdd(lo, addr); err != nil {
			return err
		}
	}
	for _, name := range []string{"net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding"} {
		if err := os.WriteFile("/proc/sys/"+name, []byte("1"), 0); err != nil {
			return err
		}
	}
	return nil
}

// needNode skips, or fails where the lab is required. The scripts in the containers use programs of this machine.
func needNode(t testing.TB) {
	t.Helper()
	reason := ""
	if os.Getenv(insideEnv) == "" {
		reason = "needs root: the runtime makes namespaces and mounts"
	}
	for _, tool := range []string{"ip", "nc", "perl", "ps"} {
		if _, err := exec.LookPath(tool); err != nil {
			reason = "needs " + tool + " on this machine"
		}
	}
	if reason == "" {
		return
	}
	if os.Getenv("FAIRWAY_REQUIRE_LAB") == "1" {
		t.Fatal(reason)
	}
	t.Skip(reason)
}

func linkNames(t *testing.T) string {
	t.Helper()
	links, err := netlink.LinkList()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, l := range links {
		names = append(names, l.Attrs().Name)
	}
	return strings.Join(names, " ")
}

func mountTmpfs(t *testing.T, dir string) {
	t.Helper()
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
}
