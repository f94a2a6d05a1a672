package kernel

import (
	"errors"
	"fmt"
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

// FindCgroup2 is where the cgroup2 hierarchy that holds the node's processes is mounted:
// where deploy/fairway.yaml puts the node's, else this machine's own.
func FindCgroup2() (string, error) {
	for _, dir := range []string{"/run/fairway/cgroup", "/run/fairway/cgroup/unified", "/sys/fs/cgroup", "/sys/fs/cgroup/unified"} {
		if _, err := cgroupID(dir); err == nil {
			return dir, nil
		}
	}
	return "", fmt.Errorf("%w: no file system of type cgroup2 is mounted at /sys/fs/cgroup: mount -t cgroup2 none /sys/fs/cgroup (ip netns exec NAME hides the machine's behind a /sys of its own, nsenter --net=/run/netns/NAME does not)", ErrNoBPF)
}
