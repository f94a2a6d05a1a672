package node

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"runtime"
	"strings"

	cadvisorapi "github.com/google/cadvisor/lib/model"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/kubelet/cadvisor"
	cadvisortesting "k8s.io/kubernetes/pkg/kubelet/cadvisor/testing"
	"k8s.io/kubernetes/pkg/kubelet/cm"
)

// The size a node claims, whatever the machine has: enough for any test.
const (
	nodeCores  = 16
	nodeMemory = 32 << 30
	nodeDisk   = 100 << 30
)

// containerManager is the kubelet's own stub, which manages no cgroups, with
// the three answers mended that the kubelet cannot do without.
type containerManager struct{ cm.ContainerManager }

func newContainerManager() cm.ContainerManager {
	return containerManager{cm.NewStubContainerManager()}
}

func (containerManager) GetNodeConfig() cm.NodeConfig { return cm.NodeConfig{CgroupVersion: 2} }

func (containerManager) GetCapacity(klog.Logger, bool) v1.ResourceList {
	return v1.ResourceList{v1.ResourceEphemeralStorage: *resource.NewQuantity(nodeDisk, resource.BinarySI)}
}

func (m containerManager) NewPodContainerManager() cm.PodContainerManager {
	return podContainerManager{m.ContainerManager.NewPodContainerManager()}
}

type podContainerManager struct{ cm.PodContainerManager }

// GetPodCgroupConfig says that a Pod has no cgroup. The stub's error would be
// logged at every sync; an empty configuration would crash the kubelet.
func (podContainerManager) GetPodCgroupConfig(*v1.Pod, v1.ResourceName) (*cm.ResourceConfig, error) {
	return nil, nil
}

// machine tells the kubelet what machine it is on.
type machine struct {
	cadvisortesting.Fake
	info    cadvisorapi.MachineInfo
	version cadvisorapi.VersionInfo
}

// newMachine describes a node. Its three ids differ from other nodes', or they
// would look like one machine.
func newMachine(name string) cadvisor.Interface {
	id := func(kind string) string {
		sum := sha256.Sum256([]byte(kind + name))
		return hex.EncodeToString(sum[:16])
	}
	return &machine{
		info: cadvisorapi.MachineInfo{
			NumCores: nodeCores, NumPhysicalCores: nodeCores, NumSockets: 1,
			MemoryCapacity: nodeMemory,
			MachineID:      id("machine"), SystemUUID: id("system"), BootID: id("boot"),
		},
		version: cadvisorapi.VersionInfo{KernelVersion: kernel(), ContainerOsVersion: system()},
	}
}

func (m *machine) MachineInfo(klog.Logger) (*cadvisorapi.MachineInfo, error) {
	info := m.info
	return &info, nil
}

func (m *machine) VersionInfo() (*cadvisorapi.VersionInfo, error) {
	version := m.version
	return &version, nil
}

func disk() cadvisorapi.FsInfo {
	inodes := uint64(1 << 20)
	return cadvisorapi.FsInfo{Device: "/dev/root", Mountpoint: "/", Capacity: nodeDisk, Available: nodeDisk / 2,
		Usage: nodeDisk / 2, Inodes: &inodes, InodesFree: &inodes}
}

func (m *machine) RootFsInfo() (cadvisorapi.FsInfo, error) { return disk(), nil }

func (m *machine) ImagesFsInfo(context.Context) (cadvisorapi.FsInfo, error) { return disk(), nil }

func (m *machine) ContainerFsInfo(context.Context) (cadvisorapi.FsInfo, error) { return disk(), nil }

func (m *machine) GetDirFsInfo(string) (cadvisorapi.FsInfo, error) { return disk(), nil }

func kernel() string {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return runtime.GOOS
	}
	return unix.ByteSliceToString(u.Release[:])
}

func system() string {
	raw, err := os.ReadFile("/etc/os-release")
	if err != nil {
		return runtime.GOOS
	}
	for line := range strings.Lines(string(raw)) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "PRETTY_NAME="); ok {
			return strings.Trim(name, `"`)
		}
	}
	return runtime.GOOS
}
