package kernel

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/features"
)

// ErrNoBPF says that this kernel, or what this process may do, lacks what the eBPF mode
// needs.
var ErrNoBPF = errors.New("the eBPF mode cannot run here")

// ProbeEBPF asks the kernel for everything the mode needs, and names what is missing.
func ProbeEBPF() error {
	var missing []string
	need := func(what string, err error) {
		if err != nil {
			missing = append(missing, fmt.Sprintf("%s (%v)", what, err))
		}
	}
	for t, name := range map[ebpf.MapType]string{ebpf.LRUHash: "LRU hash maps", ebpf.LPMTrie: "prefix maps",
		ebpf.SkStorage: "socket storage (Linux 5.2)", ebpf.PerCPUHash: "per-CPU maps"} {
		need(name, features.HaveMapType(t))
	}
	need("packet filters in tc (CONFIG_NET_CLS_BPF)", features.HaveProgramType(ebpf.SchedCLS))
	need("programs at sockets (CONFIG_CGROUP_BPF)", features.HaveProgramType(ebpf.CGroupSockAddr))
	if len(missing) == 0 {
		need("bpf_set_retval (Linux 5.18)", features.HaveProgramHelper(ebpf.CGroupSockAddr, asm.FnSetRetval))
		need("bpf_get_netns_cookie (Linux 5.7)", features.HaveProgramHelper(ebpf.CGroupSockAddr, asm.FnGetNetnsCookie))
		need("bpf_sk_storage_get (Linux 5.2)", features.HaveProgramHelper(ebpf.CGroupSockAddr, asm.FnSkStorageGet))
	}
	if len(missing) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %s", ErrNoBPF, strings.Join(missing, ", "))
}

// FindCgroup2 is where the cgroup2 hierarchy is mounted: its root holds every process of
// the machine.
func FindCgroup2() (string, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return "", fmt.Errorf("ebpf: %w", err)
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		// 30 23 0:26 / /sys/fs/cgroup rw,… shared:4 - cgroup2 cgroup2 rw
		mount, fs, ok := strings.Cut(lines.Text(), " - ")
		if fields := strings.Fields(mount); ok && strings.HasPrefix(fs, "cgroup2 ") && len(fields) > 4 {
			return fields[4], nil
		}
	}
	return "", fmt.Errorf("%w: no file system of type cgroup2 is mounted", ErrNoBPF)
}
