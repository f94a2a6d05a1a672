package kernel

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"fairway/proxy"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// The filters at both doors of an interface. They stay when the process ends, and are
// replaced in one step by the next one's.
const (
	filterPriority = 10
	filterHandle   = 0xfa1
	arriveName     = "fairway/arrive"
	leaveName      = "fairway/leave"
)

// hooks are the cgroup's programs and where they attach.
func hooks() map[string]ebpf.AttachType {
	return map[string]ebpf.AttachType{
		"fw_connect4": ebpf.AttachCGroupInet4Connect, "fw_connect6": ebpf.AttachCGroupInet6Connect,
		"fw_sendmsg4": ebpf.AttachCGroupUDP4Sendmsg, "fw_sendmsg6": ebpf.AttachCGroupUDP6Sendmsg,
		"fw_recvmsg4": ebpf.AttachCGroupUDP4Recvmsg, "fw_recvmsg6": ebpf.AttachCGroupUDP6Recvmsg,
		"fw_peername4": ebpf.AttachCgroupInet4GetPeername, "fw_peername6": ebpf.AttachCgroupInet6GetPeername,
	}
}

// Attach puts the programs on every interface and on the cgroup where they are not yet,
// and tells the programs about the interfaces. all also looks where this process has put
// them before. The lines say what was missing.
func (k *EBPF) Attach(d proxy.Detector, all bool) (missing []string, err error) {
	if err := k.openPrograms(); err != nil {
		return nil, err
	}
	if all {
		k.done = map[int]bool{}
	}
	var errs []error
	if k.opts.Cgroup != "" && !k.done[0] {
		lines, err := k.attachCgroup()
		missing, k.done[0] = append(missing, lines...), err == nil
		errs = append(errs, err)
	}
	lines, err := k.attachLinks(d)
	return append(missing, lines...), errors.Join(append(errs, err)...)
}

func (k *EBPF) handle() (*netlink.Handle, error) {
	if k.opts.NetNS == 0 {
		return netlink.NewHandle(unix.NETLINK_ROUTE)
	}
	return netlink.NewHandleAt(netns.NsHandle(k.opts.NetNS), unix.NETLINK_ROUTE)
}

func (k *EBPF) attachLinks(d proxy.Detector) (missing []string, err error) {
	nl, err := k.handle()
	if err != nil {
		return nil, fmt.Errorf("ebpf: %w", err)
	}
	defer nl.Close()
	links, err := nl.LinkList()
	if err != nil {
		return nil, fmt.Errorf("ebpf: interfaces: %w", err)
	}
	if err := k.writeNICs(nl, links, d); err != nil {
		return nil, err
	}
	seen := map[int]bool{0: k.done[0]}
	var errs []error
	for _, l := range links {
		a := l.Attrs()
		if a.Flags&unix.IFF_LOOPBACK != 0 {
			continue
		}
		if seen[a.Index] = k.done[a.Index]; k.done[a.Index] {
			continue
		}
		lines, err := k.attachLink(nl, a)
		missing, seen[a.Index] = append(missing, lines...), err == nil
		if err != nil && !gone(nl, a.Index) {
			errs = append(errs, fmt.Errorf("interface %s: %w", a.Name, err))
		}
	}
	k.done = seen
	return missing, errors.Join(errs...)
}

// gone tells an interface that was removed meanwhile.
func gone(nl *netlink.Handle, index int) bool {
	_, err := nl.LinkByIndex(index)
	return errors.As(err, &netlink.LinkNotFoundError{})
}

// attachLink puts both filters on an interface. The lines name those that were not there.
func (k *EBPF) attachLink(nl *netlink.Handle, a *netlink.LinkAttrs) (missing []string, err error) {
	qdisc := &netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{LinkIndex: a.Index,
		Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT}}
	if err := nl.QdiscAdd(qdisc); err != nil && !errors.Is(err, unix.EEXIST) {
		return nil, fmt.Errorf("clsact: %w", err)
	}
	variant := ""
	if a.EncapType != "ether" {
		variant = "_ip"
	}
	for _, door := range []struct {
		parent        uint32
		name, program string
	}{{netlink.HANDLE_MIN_INGRESS, arriveName, "fw_arrive"}, {netlink.HANDLE_MIN_EGRESS, leaveName, "fw_leave"}} {
		p := k.programs[door.program+variant]
		there, current, err := findFilter(nl, a.Index, door.parent, door.name, p)
		if err != nil {
			return missing, err
		}
		if !there {
			missing = append(missing, fmt.Sprintf("attach %s to %s", door.name, a.Name))
		}
		if current {
			continue
		}
		if err := nl.FilterReplace(filter(a.Index, door.parent, door.name, p.FD())); err != nil {
			return missing, fmt.Errorf("filter %s: %w", door.name, err)
		}
	}
	return missing, nil
}

func filter(index int, parent uint32, name string, fd int) *netlink.BpfFilter {
	return &netlink.BpfFilter{Fd: fd, Name: name, DirectAction: true, FilterAttrs: netlink.FilterAttrs{
		LinkIndex: index, Parent: parent, Handle: filterHandle, Priority: filterPriority, Protocol: unix.ETH_P_ALL}}
}

// findFilter tells whether a filter of ours is there, and whether it is this process's.
func findFilter(nl *netlink.Handle, index int, parent uint32, name string, p *ebpf.Program) (there, current bool, err error) {
	list, err := nl.FilterList(&netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Index: index}}, parent)
	if err != nil {
		return false, false, fmt.Errorf("filters: %w", err)
	}
	for _, f := range list {
		b, ok := f.(*netlink.BpfFilter)
		if !ok || b.Name != name {
			continue
		}
		there = true
		if p == nil {
			continue
		}
		info, err := p.Info()
		if err != nil {
			return true, false, err
		}
		id, _ := info.ID()
		current = current || int(id) == b.Id
	}
	return there, current, nil
}

// writeNICs tells the programs which interfaces lead to pods, and with which address packets leave by each.
func (k *EBPF) writeNICs(nl *netlink.Handle, links []netlink.Link, d proxy.Detector) error {
	m := k.maps["nics"]
	stale := map[string]bool{}
	if err := eachElement(m, func(key, _ string) { stale[key] = true }); err != nil {
		return fmt.Errorf("ebpf: map nics: %w", err)
	}
	addrs, err := nl.AddrList(nil, unix.AF_UNSPEC)
	if err != nil {
		return fmt.Errorf("ebpf: addresses: %w", err)
	}
	for _, l := range links {
		a := l.Attrs()
		value := make([]byte, m.ValueSize())
		if isPodLink(a, links, d) {
			value[0] |= 1
		}
		for i, v6 := range []bool{false, true} {
			if own := linkAddr(addrs, a.Index, v6); own.IsValid() {
				b := own.As16()
				copy(value[4+16*i:], b[:])
			}
		}
		key := leU32(uint32(a.Index))
		delete(stale, key)
		if old, _ := m.LookupBytes(key); string(old) == string(value) {
			continue
		}
		if err := m.Put(key, value); err != nil {
			return fmt.Errorf("ebpf: map nics: %w", full(err))
		}
	}
	for key := range stale {
		if err := m.Delete(key); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("ebpf: map nics: %w", err)
		}
	}
	return nil
}

func leU32(v uint32) string {
	return string([]byte{byte(v), byte(v >> 8), byte(v >> 16), byte(v >> 24)})
}

// isPodLink tells whether local pods are behind an interface: it is, or is a port of, the
// bridge, or its name begins so.
func isPodLink(a *netlink.LinkAttrs, links []netlink.Link, d proxy.Detector) bool {
	switch d.Mode {
	case proxy.DetectInterfaceNamePrefix:
		return d.Interface != "" && strings.HasPrefix(a.Name, d.Interface)
	case proxy.DetectBridgeInterface:
		return a.Name == d.Interface || a.MasterIndex != 0 && slices.ContainsFunc(links, func(l netlink.Link) bool {
			return l.Attrs().Index == a.MasterIndex && l.Attrs().Name == d.Interface
		})
	}
	return false
}

// linkAddr is the address a packet that leaves by an interface would be given, as the
// kernel's masquerade chooses it: the first of global scope.
func linkAddr(list []netlink.Addr, index int, v6 bool) netip.Addr {
	for _, a := range list {
		ip, ok := netip.AddrFromSlice(a.IP)
		if ip = ip.Unmap(); !ok || a.LinkIndex != index || ip.Is6() != v6 || a.Scope != unix.RT_SCOPE_UNIVERSE {
			continue
		}
		if a.Flags&(unix.IFA_F_TEMPORARY|unix.IFA_F_DEPRECATED|unix.IFA_F_TENTATIVE) == 0 {
			return ip
		}
	}
	return netip.Addr{}
}

// attachCgroup pins a link per hook; one that is there gets this process's program.
func (k *EBPF) attachCgroup() (missing []string, err error) {
	want, err := cgroupID(k.opts.Cgroup)
	if err != nil {
		return nil, err
	}
	var errs []error
	for name, hook := range hooks() {
		lines, err := k.attachHook(name, hook, want)
		missing, errs = append(missing, lines...), append(errs, err)
	}
	slices.Sort(missing)
	return missing, errors.Join(errs...)
}

func (k *EBPF) attachHook(name string, hook ebpf.AttachType, cgroup uint64) (missing []string, err error) {
	path := filepath.Join(k.opts.Dir, "link_"+name)
	p := k.programs[name]
	if l, err := link.LoadPinnedLink(path, nil); err == nil {
		defer l.Close()
		if attachedTo(l, cgroup) && l.Update(p) == nil {
			return nil, nil
		}
		if err := os.Remove(path); err != nil {
			return nil, fmt.Errorf("ebpf: %w", err)
		}
	}
	missing = []string{fmt.Sprintf("attach %s to cgroup %s", name, k.opts.Cgroup)}
	l, err := link.AttachCgroup(link.CgroupOptions{Path: k.opts.Cgroup, Attach: hook, Program: p})
	if err != nil {
		return missing, fmt.Errorf("ebpf: %s on %s: %w", name, k.opts.Cgroup, err)
	}
	defer l.Close()
	if err := l.Pin(path); err != nil {
		return missing, fmt.Errorf("ebpf: pin %s: %w", path, err)
	}
	return missing, nil
}

func attachedTo(l link.Link, cgroup uint64) bool {
	info, err := l.Info()
	if err != nil || info.Cgroup() == nil {
		return false
	}
	return info.Cgroup().CgroupId == cgroup
}

// cgroupID is the number the kernel knows a cgroup2 directory by: its inode.
func cgroupID(dir string) (uint64, error) {
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return 0, fmt.Errorf("ebpf: cgroup %s: %w", dir, err)
	}
	if uint32(fs.Type) != unix.CGROUP2_SUPER_MAGIC {
		return 0, fmt.Errorf("ebpf: %s is not on a file system of type cgroup2", dir)
	}
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		return 0, fmt.Errorf("ebpf: cgroup %s: %w", dir, err)
	}
	return st.Ino, nil
}

// Missing tells where programs are not attached, in the words of Attach, and changes
// nothing.
func (k *EBPF) Missing() ([]string, error) {
	nl, err := k.handle()
	if err != nil {
		return nil, fmt.Errorf("ebpf: %w", err)
	}
	defer nl.Close()
	links, err := nl.LinkList()
	if err != nil {
		return nil, fmt.Errorf("ebpf: interfaces: %w", err)
	}
	var missing []string
	for _, l := range links {
		a := l.Attrs()
		if a.Flags&unix.IFF_LOOPBACK != 0 {
			continue
		}
		for name, parent := range map[string]uint32{arriveName: netlink.HANDLE_MIN_INGRESS, leaveName: netlink.HANDLE_MIN_EGRESS} {
			if there, _, err := findFilter(nl, a.Index, parent, name, nil); err == nil && !there {
				missing = append(missing, fmt.Sprintf("attach %s to %s", name, a.Name))
			}
		}
	}
	for name := range hooks() {
		if _, err := os.Stat(filepath.Join(k.opts.Dir, "link_"+name)); err != nil {
			missing = append(missing, fmt.Sprintf("attach %s to the cgroup", name))
		}
	}
	slices.Sort(missing)
	return missing, nil
}

// close lets go of what is open; what is pinned or attached stays.
func (k *EBPF) close() {
	for _, m := range k.maps {
		_ = m.Close()
	}
	for _, p := range k.programs {
		_ = p.Close()
	}
	k.maps, k.programs, k.done = nil, nil, map[int]bool{}
}
