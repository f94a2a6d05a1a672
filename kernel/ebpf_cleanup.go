package kernel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	room "fairway/proxy/ebpf"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Cleanup takes the programs off everything and removes the maps. Interfaces keep the
// clsact qdisc when somebody else has filters there. Connections that are just being made,
// or are about to end, are let end first: nobody else knows how theirs are translated.
func (k *EBPF) Cleanup() error {
	var errs []error
	k.close()
	errs = append(errs, leave(k.opts.Dir))
	nl, err := k.handle()
	if err != nil {
		return fmt.Errorf("ebpf: %w", err)
	}
	defer nl.Close()
	links, err := nl.LinkList()
	if err != nil {
		return fmt.Errorf("ebpf: interfaces: %w", err)
	}
	for _, l := range links {
		errs = append(errs, detachLink(nl, l.Attrs().Index))
	}
	if err := os.RemoveAll(k.opts.Dir); err != nil && !errors.Is(err, unix.EPERM) {
		errs = append(errs, fmt.Errorf("ebpf: %w", err))
	}
	return errors.Join(errs...)
}

func detachLink(nl *netlink.Handle, index int) error {
	ours, others := 0, 0
	for _, parent := range []uint32{netlink.HANDLE_MIN_INGRESS, netlink.HANDLE_MIN_EGRESS} {
		list, err := nl.FilterList(&netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Index: index}}, parent)
		if err != nil {
			continue // the interface went, or has no qdisc
		}
		for _, f := range list {
			b, ok := f.(*netlink.BpfFilter)
			if !ok || b.Name != arriveName && b.Name != leaveName {
				others++
				continue
			}
			ours++
			if err := nl.FilterDel(f); err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ENODEV) {
				return fmt.Errorf("ebpf: remove %s: %w", b.Name, err)
			}
		}
	}
	if ours > 0 && others == 0 {
		_ = nl.QdiscDel(&netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{LinkIndex: index,
			Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT}})
	}
	return nil
}

// From bpf/layout.h: where in an element of flows things are.
const (
	flowFlags   = 36
	flowSeen    = 40
	flowClosing = 2
	protoTCP    = 6
)

// lingers is how long a mode that is left waits for open connections, and quiet how long
// one has said nothing that is not waited for.
const (
	lingers = 2 * time.Second
	quiet   = 2 * time.Second
)

// leave tells the programs below dir, or of the nodes in it, to take no new connections,
// and waits a little for those there are.
func leave(dir string) error {
	var errs []error
	for _, at := range []string{dir, filepath.Join(dir, "*")} {
		found, _ := filepath.Glob(filepath.Join(at, "settings"))
		for _, path := range found {
			errs = append(errs, leaveOne(filepath.Dir(path)))
		}
	}
	return errors.Join(errs...)
}

func leaveOne(dir string) error {
	settings, err := ebpf.LoadPinnedMap(filepath.Join(dir, "settings"), nil)
	if err != nil {
		return fmt.Errorf("ebpf: %s: %w", dir, err)
	}
	defer settings.Close()
	value, err := settings.LookupBytes(uint32(0))
	if err == nil && len(value) > 0 {
		value[0] = room.SetIdle
		err = settings.Put(uint32(0), value)
	}
	if err != nil {
		return fmt.Errorf("ebpf: map settings: %w", err)
	}
	flows, err := ebpf.LoadPinnedMap(filepath.Join(dir, "flows"), nil)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("ebpf: %s: %w", dir, err)
	}
	defer flows.Close()
	for end := time.Now().Add(lingers); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		open, err := openFlows(flows)
		if err != nil {
			return fmt.Errorf("ebpf: map flows: %w", err)
		}
		if !open {
			return nil
		}
	}
	return nil
}

// openFlows tells whether a TCP connection is in use that neither end has closed.
func openFlows(flows *ebpf.Map) (open bool, err error) {
	now, err := sinceBoot()
	if err != nil {
		return false, err
	}
	since := max(now, uint32(quiet/time.Second)) - uint32(quiet/time.Second)
	err = eachElement(flows, func(key, value string) {
		flags, seen := binary.LittleEndian.Uint32([]byte(value[flowFlags:])), binary.LittleEndian.Uint32([]byte(value[flowSeen:]))
		open = open || key[36] == protoTCP && flags&flowClosing == 0 && seen >= since
	})
	return open, err
}

// sinceBoot is the programs' time, in seconds.
func sinceBoot() (uint32, error) {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
		return 0, fmt.Errorf("time since boot: %w", err)
	}
	return uint32(now.Sec), nil
}
