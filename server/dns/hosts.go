package dnsserver

import (
	"os"
	"slices"

	"fairway/dns"

	wire "github.com/miekg/dns"
)

// hostsFile is a dns.Hosts with the text of its file.
type hostsFile struct {
	file, text string
	*dns.Hosts
}

// readHosts reads the files of the configuration; what has not changed keeps its tables.
// The caller holds mu.
func (f *forwarder) readHosts(cfg dns.ForwardConfig, before []dns.HostsConfig) {
	old := f.hosts.Load()
	var now []*hostsFile
	for i, c := range cfg.Hosts {
		text := ""
		if c.File != "" {
			data, err := os.ReadFile(c.File)
			text = string(data)
			if err != nil { // what it said last stays
				f.warnOnce("hosts not read: " + err.Error())
				text = lastText(old, c.File)
			}
		}
		if old != nil && i < len(*old) && i < len(before) && sameHosts(c, before[i]) && (*old)[i].text == text {
			now = append(now, (*old)[i])
			continue
		}
		now = append(now, &hostsFile{file: c.File, text: text, Hosts: dns.NewHosts(c, text)})
	}
	f.hosts.Store(&now)
}

func lastText(old *[]*hostsFile, file string) string {
	if old != nil {
		for _, h := range *old {
			if h.file == file {
				return h.text
			}
		}
	}
	return ""
}

func sameHosts(a, b dns.HostsConfig) bool {
	return a.File == b.File && a.TTL == b.TTL && a.NoReverse == b.NoReverse && slices.Equal(a.Zones, b.Zones) && slices.Equal(a.Blocks, b.Blocks) &&
		slices.Equal(a.Inline, b.Inline) && slices.Equal(a.Fallthrough, b.Fallthrough)
}

// listed answers from the hosts files; nil when the question is the upstreams'.
func (f *forwarder) listed(req *wire.Msg, name string) *wire.Msg {
	hosts := f.hosts.Load()
	if hosts == nil {
		return nil
	}
	block := ""
	if r := f.routeFor(name); r != nil {
		block = r.Block
	}
	for _, h := range *hosts {
		if !h.Asked(name, block) {
			continue
		}
		r := h.Answer(dns.Question{Name: name, Type: dns.Type(req.Question[0].Qtype)})
		if !r.NotOurs {
			return render(req, r)
		}
	}
	return nil
}
