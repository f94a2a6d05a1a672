package cri

import (
	"maps"
	"os"
	"slices"
	"strings"

	"fairway/lab/cri/spec"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// imageFiles are the few files a container finds besides programs: who is who, how names resolve, and what its image
// adds.
func (s *server) imageFiles(c *container) []spec.File {
	hostname := c.hostname(s)
	files := []spec.File{
		{Path: "/etc/passwd", Text: passwdText()},
		{Path: "/etc/group", Text: groupText()},
		{Path: "/etc/nsswitch.conf", Text: "passwd: files\ngroup: files\nhosts: files dns\nservices: files\nprotocols: files\n"},
		{Path: "/etc/hostname", Text: hostname + "\n"},
		{Path: "/etc/hosts", Text: "127.0.0.1 localhost\n::1 localhost\n" + ownHost(c.pod, hostname)},
		{Path: "/etc/resolv.conf", Text: resolvText(c.pod.config.GetDnsConfig())},
	}
	if !c.image.Bare {
		files = append(files, likeBusybox()...)
	}
	for _, dir := range c.image.Dirs {
		files = append(files, spec.File{Path: dir, Dir: true})
	}
	for _, at := range slices.Sorted(maps.Keys(c.image.Links)) {
		files = append(files, spec.File{Path: at, Link: c.image.Links[at]})
	}
	for _, at := range slices.Sorted(maps.Keys(c.image.Files)) {
		files = append(files, spec.File{Path: at, Text: c.image.Files[at]})
	}
	return files
}

// likeBusybox mends what scripts for small images trip over with this machine's tools. Debian's sh knows no "echo -e" and
// drops variables with a dash or dot in their name; bash called as sh does neither. And all programs are in /bin there.
func likeBusybox() []spec.File {
	var files []spec.File
	for at, target := range map[string]string{"/usr/bin/sh": "/usr/bin/bash", "/usr/bin/sysctl": "/usr/sbin/sysctl"} {
		if _, err := os.Stat(target); err == nil {
			files = append(files, spec.File{Path: at, Link: target})
		}
	}
	return files
}

// ownHost is for containers without the kubelet's own /etc/hosts.
func ownHost(p *sandbox, hostname string) string {
	if p.link == nil || len(p.link.IPs) == 0 {
		return ""
	}
	return p.link.IPs[0].String() + " " + hostname + "\n"
}

// resolvText is resolv.conf(5) in the order the kubelet's own test images expect.
func resolvText(c *runtimeapi.DNSConfig) string {
	var b strings.Builder
	for _, server := range c.GetServers() {
		b.WriteString("nameserver " + server + "\n")
	}
	if len(c.GetSearches()) > 0 {
		b.WriteString("search " + strings.Join(c.GetSearches(), " ") + "\n")
	}
	if len(c.GetOptions()) > 0 {
		b.WriteString("options " + strings.Join(c.GetOptions(), " ") + "\n")
	}
	return b.String()
}
