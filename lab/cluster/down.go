package cluster

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"slices"
	"sort"
	"strings"
	"time"

	"fairway/lab/cgroup"
	"fairway/lab/state"

	"golang.org/x/sys/unix"
)

// killLimit bounds the wait for processes that were sent SIGKILL; a node's
// namespace may hold a few hundred.
const killLimit = 20 * time.Second

// Down removes the lab with everything it made: processes, namespaces, mounts
// and files.
func (l Lab) Down() error {
	if !l.Dir.Exists() {
		return fmt.Errorf("there is no lab %s", l.Dir.Name)
	}
	unlock, err := l.Dir.Lock(false)
	if err != nil {
		return err
	}
	defer unlock()
	return l.remove()
}

func (l Lab) remove() error {
	if err := l.clear(); err != nil {
		return err
	}
	if err := os.RemoveAll(l.Dir.Path()); err != nil {
		return fmt.Errorf("lab %s: %w", l.Dir.Name, err)
	}
	// The last lab takes the directory of all labs with it.
	if err := os.Remove(l.Dir.Root); err != nil && !errors.Is(err, unix.ENOTEMPTY) && !os.IsExist(err) {
		return fmt.Errorf("lab %s: %w", l.Dir.Name, err)
	}
	return nil
}

// clear kills the lab's processes, running or left over from a crash, and
// empties its directory. It finds strays, such as a command that somebody runs
// by exec, by the network namespace they are in.
func (l Lab) clear() error {
	daemons := l.daemons()
	networks, err := labNetworks(daemons)
	if err != nil {
		return fmt.Errorf("lab %s: %w", l.Dir.Name, err)
	}
	if err := killAll(daemons); err != nil {
		return fmt.Errorf("lab %s: %w", l.Dir.Name, err)
	}
	if err := killAll(state.InNetworks(networks)); err != nil {
		return fmt.Errorf("lab %s: %w", l.Dir.Name, err)
	}
	cgroup.RemoveAll(l.Dir.Name)
	if err := unmountBelow(l.Dir.Path()); err != nil {
		return fmt.Errorf("lab %s: %w", l.Dir.Name, err)
	}
	return l.empty()
}

// daemons returns the lab's own processes: those remembered, and those whose
// command line says so, as a launcher may have been killed before it could
// remember them.
func (l Lab) daemons() []state.Process {
	var list []state.Process
	for _, name := range l.Dir.Processes() {
		if p := l.Dir.Process(name); p.Alive() {
			list = append(list, p)
		}
	}
	for _, p := range state.WithArguments("daemon", l.daemonArgs("")[1:]) {
		if !slices.Contains(list, p) {
			list = append(list, p)
		}
	}
	return list
}

// labNetworks returns the inode numbers of the network namespaces of a lab's
// processes. Every process found in one of them is killed, so the machine's own
// must never be among them, whatever the records say.
func labNetworks(daemons []state.Process) (map[uint64]bool, error) {
	networks := map[uint64]bool{}
	for _, d := range daemons {
		for _, path := range networksOf(d) {
			if inode, err := state.NetworkInode(path); err == nil {
				networks[inode] = true
			}
		}
	}
	// Not /proc/self: that is the main thread, which may have been sent into the
	// lab for good by an earlier step.
	own, err := state.NetworkInode("/proc/thread-self/ns/net")
	if err != nil {
		return nil, err
	}
	delete(networks, own)
	return networks, nil
}

// networksOf returns the paths of the lab's network namespaces that a process
// of the lab leads to: those that the fabric's keeps open (it runs in the
// machine's own), or the one that any other is in.
func networksOf(p state.Process) []string {
	var paths []string
	for _, fd := range []int{fdLAN, fdClient, fdRouter} {
		path := fmt.Sprintf("/proc/%d/fd/%d", p.PID, fd)
		if target, err := os.Readlink(path); err == nil && strings.HasPrefix(target, "net:[") {
			paths = append(paths, path)
		}
	}
	if len(paths) > 0 {
		return paths
	}
	return []string{fmt.Sprintf("/proc/%d/ns/net", p.PID)}
}

func killAll(list []state.Process) error {
	var errs []error
	for _, p := range list {
		errs = append(errs, p.Kill())
	}
	for _, p := range list {
		errs = append(errs, p.WaitGone(killLimit))
	}
	return errors.Join(errs...)
}

// empty removes what is in the lab's directory but not the directory, which
// carries the lock.
func (l Lab) empty() error {
	entries, err := os.ReadDir(l.Dir.Path())
	if err != nil {
		return fmt.Errorf("lab %s: %w", l.Dir.Name, err)
	}
	for _, e := range entries {
		if err := os.RemoveAll(l.Dir.Path(e.Name())); err != nil {
			return fmt.Errorf("lab %s: %w", l.Dir.Name, err)
		}
	}
	return nil
}

// unmountBelow detaches every mount at or below dir. The lab makes none on the
// machine, but a file must never be deleted through one that somebody else made.
func unmountBelow(dir string) error {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	defer f.Close()
	var points []string
	for lines := bufio.NewScanner(f); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) > 4 && (fields[4] == dir || strings.HasPrefix(fields[4], dir+"/")) {
			points = append(points, fields[4])
		}
	}
	sort.Sort(sort.Reverse(sort.StringSlice(points)))
	for _, p := range points {
		if err := unix.Unmount(p, unix.MNT_DETACH); err != nil {
			return fmt.Errorf("unmount %s: %w", p, err)
		}
	}
	return nil
}
