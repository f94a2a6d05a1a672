// Package story reads txtar stories: objects, a node's settings and packets come in,
// the want-* sections are compared with what a room makes of them and rewritten with
// -update. It compiles nothing itself.
package story

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"fairway/kube"
	"fairway/model"
	"fairway/packet"
	"fairway/proxy"

	"golang.org/x/tools/txtar"
	"sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "rewrite the want-* sections of stories with what is seen")

// Story is one txtar file. Sections: objects.yaml (or several *.yaml files), config.yaml
// (Settings), packets (one per line), and want-NAME for each result.
type Story struct {
	Path     string
	Objects  model.Objects
	Problems []model.Problem // from reading the objects
	Config   proxy.Config
	Packets  []packet.Packet

	archive *txtar.Archive
	changed bool
}

// Settings is config.yaml: the node's side of proxy.Config in plain words.
type Settings struct {
	Node               string   `json:"node"`
	NodeIPs            []string `json:"nodeIPs"`
	LocalAddrs         []string `json:"localAddrs"`
	DetectMode         string   `json:"detectMode"`
	DetectCIDRs        []string `json:"detectCIDRs"`
	DetectInterface    string   `json:"detectInterface"`
	MasqueradeAll      bool     `json:"masqueradeAll"`
	NodePortAddresses  []string `json:"nodePortAddresses"` // CIDRs, or the word primary
	LocalhostNodePorts bool     `json:"localhostNodePorts"`
	RejectUnknownPorts bool     `json:"rejectUnknownPorts"`
	ServiceCIDRs       []string `json:"serviceCIDRs"`
	ProxyName          string   `json:"proxyName"`
	NoExternalIPs      bool     `json:"noExternalIPs"`
	APIServers         []string `json:"apiServers"`
	Mode               string   `json:"mode"`
	Scheduler          string   `json:"scheduler"`
}

// Glob loads every story that matches, and fails when none does.
func Glob(t *testing.T, pattern string) []*Story {
	t.Helper()
	paths, err := filepath.Glob(pattern)
	if err != nil || len(paths) == 0 {
		t.Fatalf("no story matches %s (%v)", pattern, err)
	}
	out := make([]*Story, len(paths))
	for i, p := range paths {
		out[i] = Load(t, p)
	}
	return out
}

// Load reads one story.
func Load(t *testing.T, path string) *Story {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	s, err := Parse(path, data)
	if err != nil {
		t.Fatal(err)
	}
	if bad := s.unknown(); len(bad) > 0 {
		t.Fatalf("%s: no section is called %s: a misspelt one would check nothing", path, strings.Join(bad, ", "))
	}
	t.Cleanup(func() { s.save(t) })
	return s
}

// sections are all names of sections there are, beside *.yaml; want-NAME has one of wants.
const (
	sections = " packets queries services rows requests settings certificates traces lookups addresses options live Corefile config.conf "
	wants    = " problems trace plan table requests why reply rules nft-trace nft services userspace sets lb zone userspace-trace userspace-problems" +
		" maps-trace maps diff addrs program nft-base listeners-trace listeners-problems listeners ebpf-problems drain "
)

// unknown are the sections nobody reads.
func (s *Story) unknown() (bad []string) {
	for _, f := range s.archive.Files {
		want, isWant := strings.CutPrefix(f.Name, "want-")
		switch {
		case strings.HasSuffix(f.Name, ".yaml"), isWant && strings.Contains(wants, " "+want+" "), strings.Contains(sections, " "+f.Name+" "):
		default:
			bad = append(bad, f.Name)
		}
	}
	return bad
}

// Parse reads a story from memory.
func Parse(path string, data []byte) (*Story, error) {
	s := &Story{Path: path, archive: txtar.Parse(data)}
	settings := Settings{Node: "node1", NodeIPs: []string{"172.30.0.11", "fd00:30::11"},
		DetectMode: "ClusterCIDR", DetectCIDRs: []string{"10.244.1.0/24", "fd00:244:1::/64"}, RejectUnknownPorts: true}
	for _, f := range s.archive.Files {
		switch {
		case f.Name == "config.yaml":
			if err := yaml.UnmarshalStrict(f.Data, &settings); err != nil {
				return nil, fmt.Errorf("%s: config.yaml: %w", path, err)
			}
		case strings.HasSuffix(f.Name, ".yaml"):
			o, problems := kube.Decode(f.Name, f.Data)
			kube.Append(&s.Objects, o)
			s.Problems = append(s.Problems, problems...)
		}
	}
	var dup []model.Problem
	s.Objects, dup = kube.Unique(s.Objects)
	s.Problems = append(s.Problems, dup...)
	var err error
	if s.Config, err = settings.Config(); err != nil {
		return nil, fmt.Errorf("%s: config.yaml: %w", path, err)
	}
	if s.Packets, err = parsePackets(s.Section("packets")); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return s, nil
}

// Config turns the settings into the plan's.
func (s Settings) Config() (proxy.Config, error) {
	c := proxy.Config{Node: s.Node, MasqueradeAll: s.MasqueradeAll, MasqueradeBit: 14, LocalhostNodePorts: s.LocalhostNodePorts,
		RejectUnknownPorts: s.RejectUnknownPorts, ProxyName: s.ProxyName, NoExternalIPs: s.NoExternalIPs, Mode: proxy.Mode(s.Mode), Scheduler: proxy.Scheduler(s.Scheduler)}
	c.Detector.Mode, c.Detector.Interface = proxy.DetectMode(s.DetectMode), s.DetectInterface
	if len(s.NodePortAddresses) == 1 && s.NodePortAddresses[0] == "primary" {
		c.NodePortAddresses.Primary, s.NodePortAddresses = true, nil
	}
	var err error
	prefixes := func(in []string) (out []netip.Prefix) {
		for _, v := range in {
			p, e := netip.ParsePrefix(v)
			if e != nil {
				err = e
			}
			out = append(out, p)
		}
		return out
	}
	addrs := func(in []string) (out []netip.Addr) {
		for _, v := range in {
			a, e := netip.ParseAddr(v)
			if e != nil {
				err = e
			}
			out = append(out, a)
		}
		return out
	}
	c.NodeIPs, c.LocalAddrs = addrs(s.NodeIPs), addrs(s.LocalAddrs)
	for _, v := range s.APIServers {
		a, e := netip.ParseAddrPort(v)
		if e != nil {
			err = e
		}
		c.APIServers = append(c.APIServers, a)
	}
	c.Detector.CIDRs, c.NodePortAddresses.CIDRs, c.ServiceCIDRs = prefixes(s.DetectCIDRs), prefixes(s.NodePortAddresses), prefixes(s.ServiceCIDRs)
	return c, err
}

// parsePackets reads lines `tcp SRC > DST:PORT [in IFACE] [local] [socket]`.
func parsePackets(text string) ([]packet.Packet, error) {
	var out []packet.Packet
	for _, line := range strings.Split(text, "\n") {
		f := strings.Fields(line)
		if len(f) == 0 || strings.HasPrefix(f[0], "#") {
			continue
		}
		p, err := parsePacket(f)
		if err != nil {
			return nil, fmt.Errorf("packet %q: %w", line, err)
		}
		out = append(out, p)
	}
	return out, nil
}

func parsePacket(f []string) (p packet.Packet, err error) {
	if len(f) < 4 || f[2] != ">" {
		return p, fmt.Errorf("want `tcp SRC > DST:PORT [in IFACE] [local] [socket]`")
	}
	if p.Proto, err = packet.ParseProtocol(f[0]); err != nil {
		return p, err
	}
	if p.Src, err = netip.ParseAddr(f[1]); err != nil {
		return p, err
	}
	if p.Dst, err = netip.ParseAddrPort(f[3]); err != nil {
		return p, err
	}
	for i := 4; i < len(f); i++ {
		switch {
		case f[i] == "local":
			p.Local, p.OnNode = true, true
		case f[i] == "socket": // of a pod of this node
			p.OnNode = true
		case f[i] == "in" && i+1 < len(f):
			i++
			p.In = f[i]
		default:
			return p, fmt.Errorf("unknown word %q", f[i])
		}
	}
	return p, nil
}

// Section returns the text of a section, empty when there is none.
func (s *Story) Section(name string) string {
	for _, f := range s.archive.Files {
		if f.Name == name {
			return string(f.Data)
		}
	}
	return ""
}

// Has tells whether the story has a section.
func (s *Story) Has(name string) bool {
	return slices.ContainsFunc(s.archive.Files, func(f txtar.File) bool { return f.Name == name })
}

// Check compares got with the section want-NAME. A story without that section does not
// ask; with -update every section that is there is rewritten.
func (s *Story) Check(t *testing.T, name, got string) {
	t.Helper()
	if got != "" && !strings.HasSuffix(got, "\n") {
		got += "\n"
	}
	for i, f := range s.archive.Files {
		if f.Name != "want-"+name || string(f.Data) == got {
			continue
		}
		if *update {
			s.archive.Files[i].Data, s.changed = []byte(got), true
			continue
		}
		t.Errorf("%s: want-%s differs\n--- got\n%s--- want\n%s", s.Path, name, got, f.Data)
	}
}

func (s *Story) save(t *testing.T) {
	if !s.changed {
		return
	}
	if err := os.WriteFile(s.Path, txtar.Format(s.archive), 0o644); err != nil {
		t.Error(err)
	}
}

// Snapshot builds the story's cluster; Problems of reading and building come together.
func (s *Story) Snapshot() (*model.Snapshot, []model.Problem) {
	snap, problems := model.Build(nil, s.Objects)
	return snap, append(slices.Clone(s.Problems), problems...)
}

// Plan makes the plan of the story's node with all Problems up to there.
func (s *Story) Plan() (*proxy.Plan, []model.Problem) {
	snap, problems := s.Snapshot()
	plan, more := proxy.New(nil, snap, s.Config)
	return plan, append(problems, more...)
}

// Shuffled returns the objects in another order: no result may depend on it.
func (s *Story) Shuffled(seed uint64) model.Objects {
	r := rand.New(rand.NewPCG(seed, seed))
	o := s.Objects
	o.Services, o.EndpointSlices = shuffle(r, o.Services), shuffle(r, o.EndpointSlices)
	o.Nodes, o.Ingresses = shuffle(r, o.Nodes), shuffle(r, o.Ingresses)
	o.Pods, o.IngressClasses = shuffle(r, o.Pods), shuffle(r, o.IngressClasses)
	o.Pools, o.Namespaces = shuffle(r, o.Pools), shuffle(r, o.Namespaces)
	o.ServiceCIDRs = shuffle(r, o.ServiceCIDRs)
	return o
}

func shuffle[T any](r *rand.Rand, in []T) []T {
	out := slices.Clone(in)
	r.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}

// Problems prints Problems, one per line, sorted.
func Problems(list []model.Problem) string {
	lines := make([]string, len(list))
	for i, p := range list {
		lines[i] = p.String() + "\n"
	}
	slices.Sort(lines)
	return strings.Join(lines, "")
}

// Trace prints what answer says of each packet of the story.
func (s *Story) Trace(answer func(packet.Packet) packet.Verdict) string {
	var b strings.Builder
	for _, p := range s.Packets {
		fmt.Fprintf(&b, "%s => %s\n", describe(p), answer(p))
	}
	return b.String()
}

func describe(p packet.Packet) string {
	s := p.String()
	if p.In != "" {
		s += " in " + p.In
	}
	switch {
	case p.Local:
		s += " local"
	case p.OnNode:
		s += " socket"
	}
	return s
}
