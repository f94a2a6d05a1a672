package kernel

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"unsafe"

	room "fairway/proxy/ebpf"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/rlimit"
	"golang.org/x/sys/unix"
)

// balancer is kernel/bpf/balancer.c compiled: `make bpf` makes it, `make bpf-check` tells
// whether the sources still give the same bytes.
//
//go:embed bpf/balancer.o
var balancer []byte

// EBPFOptions says where the programs of one node live.
type EBPFOptions struct {
	// NetNS is a descriptor of the node's network namespace, 0 for the current one.
	NetNS int
	// Dir is where maps and links are pinned, on a file system of type bpf:
	// /sys/fs/bpf/fairway/NODE.
	Dir string
	// Cgroup is the cgroup2 directory whose processes are the node's; empty leaves
	// sockets alone, and all is done at the interfaces.
	Cgroup string
	// Flows is how many flows are remembered, 0 the default of 262144 directions.
	Flows uint32
}

// EBPF is the hand on the programs of the eBPF mode. Its methods are not safe for
// concurrent use, but for Follow.
type EBPF struct {
	opts     EBPFOptions
	maps     map[string]*ebpf.Map
	programs map[string]*ebpf.Program
	done     map[int]bool // interfaces that have this process's programs; 0 is the cgroup
}

// NewEBPF makes the hand; nothing is loaded before it is needed.
func NewEBPF(o EBPFOptions) *EBPF { return &EBPF{opts: o, done: map[int]bool{}} }

// EBPFDir is the usual place of a node's maps. File names there cannot have dots.
func EBPFDir(node string) string {
	if node == "" {
		node = "node"
	}
	return filepath.Join("/sys/fs/bpf/fairway", strings.ReplaceAll(node, ".", "_"))
}

// openMaps finds the maps an earlier run pinned where they still fit, and makes the others.
func (k *EBPF) openMaps() error {
	if k.maps != nil {
		return nil
	}
	if err := bpfFS(k.opts.Dir); err != nil {
		return err
	}
	spec, err := k.spec()
	if err != nil {
		return err
	}
	for name, m := range spec.Maps {
		if m.Pinning != ebpf.PinByName {
			delete(spec.Maps, name) // constants of the programs
			continue
		}
		if err := dropUnfit(filepath.Join(k.opts.Dir, name), m); err != nil {
			return err
		}
	}
	spec.Programs, spec.Variables = nil, nil
	known, fresh, began := k.pinned("flows") && !k.pinned("recent"), !k.pinned("settings"), k.pinned("began") && k.pinned("flows")
	coll, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{Maps: ebpf.MapOptions{PinPath: k.opts.Dir}})
	if err != nil {
		return fmt.Errorf("ebpf: maps: %w", err)
	}
	k.maps = coll.Maps
	if fresh {
		value := make([]byte, coll.Maps["settings"].ValueSize())
		value[0] = room.SetIdle // until they are written
		err = coll.Maps["settings"].Put(uint32(0), value)
	}
	if !began && err == nil {
		err = k.begin()
	}
	if known && err == nil {
		err = k.rememberAll()
	}
	return err
}

// begin says that flows are remembered from now on.
func (k *EBPF) begin() error {
	now, err := sinceBoot()
	if err == nil {
		err = k.maps["began"].Put(uint32(0), now)
	}
	if err != nil {
		return fmt.Errorf("ebpf: map began: %w", err)
	}
	return nil
}

func (k *EBPF) pinned(name string) bool {
	_, err := os.Stat(filepath.Join(k.opts.Dir, name))
	return err == nil
}

// rememberAll makes the programs look every packet up that leaves: flows of an earlier
// version are not in the map that tells which need not be.
func (k *EBPF) rememberAll() error {
	m := k.maps["recent"]
	for i := range m.MaxEntries() {
		if err := m.Put(i, ^uint32(0)); err != nil {
			return fmt.Errorf("ebpf: map recent: %w", err)
		}
	}
	return nil
}

// openPrograms loads the programs, to be attached.
func (k *EBPF) openPrograms() error {
	if err := k.openMaps(); err != nil {
		return err
	}
	if k.programs != nil {
		return nil
	}
	spec, err := k.spec()
	if err != nil {
		return err
	}
	for _, m := range spec.Maps {
		m.Pinning = ebpf.PinNone // they are open
	}
	coll, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{MapReplacements: k.maps})
	if err != nil {
		return fmt.Errorf("ebpf: programs: %w", err)
	}
	for _, m := range coll.Maps {
		_ = m.Close() // clones, and constants the programs hold
	}
	k.programs = coll.Programs
	return nil
}

// spec is what is to be loaded for this node.
func (k *EBPF) spec() (*ebpf.CollectionSpec, error) {
	if err := rlimit.RemoveMemlock(); err != nil {
		return nil, fmt.Errorf("ebpf: %w", err)
	}
	spec, err := ebpf.LoadCollectionSpecFromReader(bytes.NewReader(balancer))
	if err != nil {
		return nil, fmt.Errorf("ebpf: %w", err)
	}
	cookie, err := netnsCookie(k.opts.NetNS)
	if err != nil {
		return nil, err
	}
	if err := spec.Variables["node_netns"].Set(cookie); err != nil {
		return nil, fmt.Errorf("ebpf: %w", err)
	}
	if n := k.opts.Flows; n > 0 {
		spec.Maps["flows"].MaxEntries = n
		spec.Maps["clients"].MaxEntries = max(n/2, 1024)
		spec.Maps["talks"].MaxEntries = max(n/4, 1024)
	}
	return spec, nil
}

// dropUnfit unpins a map of another version of the program. Programs in force go on with
// it until they are replaced.
func dropUnfit(path string, spec *ebpf.MapSpec) error {
	m, err := ebpf.LoadPinnedMap(path, nil)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("ebpf: %s: %w", path, err)
	}
	defer m.Close()
	if err := spec.Compatible(m); err == nil {
		return nil
	}
	return os.Remove(path)
}

// bpfFS makes dir, and mounts the file system at its usual place where nobody has.
func bpfFS(dir string) error {
	const usual = "/sys/fs/bpf"
	if strings.HasPrefix(dir, usual+"/") && !onBPFFS(usual) {
		if err := unix.Mount("bpf", usual, "bpf", 0, "mode=0700"); err != nil {
			return fmt.Errorf("ebpf: mount %s: %w", usual, err)
		}
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("ebpf: %w", err)
	}
	if !onBPFFS(dir) {
		return fmt.Errorf("ebpf: %s is not on a file system of type bpf (mount -t bpf bpf %s)", dir, usual)
	}
	return nil
}

func onBPFFS(dir string) bool {
	var st unix.Statfs_t
	return unix.Statfs(dir, &st) == nil && uint32(st.Type) == unix.BPF_FS_MAGIC
}

// netnsCookie is the number the kernel knows a network namespace by.
func netnsCookie(ns int) (uint64, error) {
	var cookie uint64
	err := inNetNS(ns, func() error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		cookie, err = unix.GetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("ebpf: cookie of the network namespace: %w", err)
	}
	return cookie, nil
}

// batch is how many elements one system call moves.
const batch = 4096

// Apply makes a Change. After an error the maps may hold a part of it.
func (k *EBPF) Apply(c *room.Change) error {
	if err := k.openMaps(); err != nil {
		return err
	}
	for _, run := range runs(c.Put()) {
		if err := k.put(run); err != nil {
			return fmt.Errorf("map %s: %w", run[0].Kind, full(err))
		}
	}
	for _, e := range c.Delete {
		if e.Kind == room.Settings {
			continue // an array: it stays, and nothing reads it without frontends
		}
		if err := k.kind(e.Kind).Delete(e.Key); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("map %s: delete %s: %w", e.Kind, e, err)
		}
	}
	return nil
}

// full says in words what the kernel says with E2BIG.
func full(err error) error {
	if errors.Is(err, unix.E2BIG) || errors.Is(err, unix.ENOSPC) {
		return fmt.Errorf("the map is full: %w", err)
	}
	return err
}

func (k *EBPF) kind(kind room.Kind) *ebpf.Map { return k.maps[kind.String()] }

// runs cuts a list into runs of one kind, none longer than batch.
func runs(list []room.Entry) [][]room.Entry {
	var out [][]room.Entry
	for i, start := 1, 0; i <= len(list); i++ {
		if i == len(list) || list[i].Kind != list[start].Kind || i-start == batch {
			out, start = append(out, list[start:i]), i
		}
	}
	return out
}

func (k *EBPF) put(run []room.Entry) error {
	m := k.kind(run[0].Kind)
	if len(run) < 8 || run[0].Kind == room.Ranges {
		for _, e := range run {
			if err := m.Put(e.Key, e.Value); err != nil {
				return fmt.Errorf("%s: %w", e, err)
			}
		}
		return nil
	}
	keys, keyBytes := arrays(len(run), int(m.KeySize()))
	values, valueBytes := arrays(len(run), int(m.ValueSize()))
	for i, e := range run {
		copy(keyBytes[i*int(m.KeySize()):], e.Key)
		copy(valueBytes[i*int(m.ValueSize()):], e.Value)
	}
	_, err := m.BatchUpdate(keys, values, nil)
	return err
}

// arrays makes a slice of n byte arrays of a size, which the batch calls ask for, and its
// memory.
func arrays(n, size int) (slice any, memory []byte) {
	v := reflect.MakeSlice(reflect.SliceOf(reflect.ArrayOf(size, reflect.TypeFor[byte]())), n, n)
	if n == 0 {
		return v.Interface(), nil
	}
	return v.Interface(), unsafe.Slice((*byte)(v.UnsafePointer()), n*size)
}

// List reads the maps, and makes none.
func (k *EBPF) List() (*room.Program, error) {
	if _, err := os.Stat(k.opts.Dir); k.maps == nil && errors.Is(err, os.ErrNotExist) {
		return room.FromEntries(nil), nil
	}
	if err := k.openMaps(); err != nil {
		return nil, err
	}
	var out []room.Entry
	for _, kind := range room.Kinds() {
		err := eachElement(k.kind(kind), func(key, value string) {
			if kind != room.Settings || strings.Trim(value, "\x00") != "" {
				out = append(out, room.Entry{Kind: kind, Key: key, Value: value})
			}
		})
		if err != nil {
			return nil, fmt.Errorf("map %s: %w", kind, err)
		}
	}
	return room.FromEntries(out), nil
}

// eachElement walks a map, in batches where its type has them.
func eachElement(m *ebpf.Map, do func(key, value string)) error {
	if t := m.Type(); t != ebpf.Hash && t != ebpf.LRUHash {
		return eachSingle(m, do)
	}
	ks, vs := int(m.KeySize()), int(m.ValueSize())
	keys, keyBytes := arrays(batch, ks)
	values, valueBytes := arrays(batch, vs)
	var cursor ebpf.MapBatchCursor
	for {
		n, err := m.BatchLookup(&cursor, keys, values, nil)
		for i := range n {
			do(string(keyBytes[i*ks:(i+1)*ks]), string(valueBytes[i*vs:(i+1)*vs]))
		}
		if errors.Is(err, ebpf.ErrKeyNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func eachSingle(m *ebpf.Map, do func(key, value string)) error {
	var key, value []byte
	it := m.Iterate()
	for it.Next(&key, &value) {
		do(string(key), string(value))
	}
	return it.Err()
}
