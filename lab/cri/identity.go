package cri

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// account is a line of the passwd file that every image here has.
type account struct {
	name     string
	uid, gid int
	home     string
	shell    string
}

func accounts() []account {
	return []account{
		{"root", 0, 0, "/root", "/bin/sh"},
		{"daemon", 1, 1, "/usr/sbin", "/usr/sbin/nologin"},
		{"bin", 2, 2, "/bin", "/usr/sbin/nologin"},
		{"sys", 3, 3, "/dev", "/usr/sbin/nologin"},
		{"mail", 8, 8, "/var/mail", "/usr/sbin/nologin"},
		{"www-data", 33, 33, "/var/www", "/usr/sbin/nologin"},
		{"nginx", 101, 101, "/nonexistent", "/usr/sbin/nologin"},
		{"nobody", 65534, 65534, "/nonexistent", "/usr/sbin/nologin"},
	}
}

func passwdText() string {
	var b strings.Builder
	for _, a := range accounts() {
		fmt.Fprintf(&b, "%s:x:%d:%d:%s:%s:%s\n", a.name, a.uid, a.gid, a.name, a.home, a.shell)
	}
	return b.String()
}

// groupText has a group of its own for every account, and tty, to which terminals belong.
func groupText() string {
	var b strings.Builder
	b.WriteString("tty:x:5:\n")
	for _, a := range accounts() {
		fmt.Fprintf(&b, "%s:x:%d:\n", strings.Replace(a.name, "nobody", "nogroup", 1), a.gid)
	}
	return b.String()
}

// identity is whom a process runs as.
type identity struct {
	uid, gid int
	groups   []int
	home     string
}

// user applies the security context over the image's user. No image here puts a user into more groups than its own, so
// both supplemental group policies come to the same.
func (c *container) user() (identity, error) {
	ctx := c.config.GetLinux().GetSecurityContext()
	who := identity{uid: c.image.UID, gid: c.image.GID}
	switch name := ctx.GetRunAsUsername(); {
	case ctx.GetRunAsUser() != nil:
		who.uid = int(ctx.GetRunAsUser().GetValue())
		who.gid = groupOf(who.uid)
	case name != "":
		a, err := lookAccount(name)
		if err != nil {
			return who, fmt.Errorf("container %s: %w", c.name(), err)
		}
		who.uid, who.gid = a.uid, a.gid
	}
	if ctx.GetRunAsGroup() != nil {
		who.gid = int(ctx.GetRunAsGroup().GetValue())
	}
	who.groups = []int{who.gid}
	for _, g := range ctx.GetSupplementalGroups() {
		if !slices.Contains(who.groups, int(g)) {
			who.groups = append(who.groups, int(g))
		}
	}
	who.home = homeOf(who.uid)
	return who, nil
}

func lookAccount(name string) (account, error) {
	for _, a := range accounts() {
		if a.name == name {
			return a, nil
		}
	}
	if uid, err := strconv.Atoi(name); err == nil {
		return account{uid: uid, gid: groupOf(uid)}, nil
	}
	return account{}, fmt.Errorf("no user %q in the image", name)
}

func groupOf(uid int) int {
	for _, a := range accounts() {
		if a.uid == uid {
			return a.gid
		}
	}
	return 0
}

func homeOf(uid int) string {
	for _, a := range accounts() {
		if a.uid == uid {
			return a.home
		}
	}
	return "/"
}

// capabilities is the bounding set: everything for a privileged container, else the customary set with what the Pod adds
// and drops.
func capabilities(ctx *runtimeapi.LinuxContainerSecurityContext) (uint64, error) {
	if ctx.GetPrivileged() {
		return ^uint64(0), nil
	}
	var set uint64
	for _, c := range customary() {
		set |= 1 << c
	}
	adds, drops := ctx.GetCapabilities().GetAddCapabilities(), ctx.GetCapabilities().GetDropCapabilities()
	isAll := func(name string) bool { return strings.EqualFold(name, "ALL") }
	if slices.ContainsFunc(adds, isAll) {
		set = ^uint64(0)
	}
	if slices.ContainsFunc(drops, isAll) {
		set = 0
	}
	for _, name := range adds {
		bit, err := capability(name)
		if err != nil {
			return 0, err
		}
		set |= bit
	}
	for _, name := range drops {
		bit, err := capability(name)
		if err != nil {
			return 0, err
		}
		set &^= bit
	}
	return set, nil
}

// customary is the set that container runtimes leave to an ordinary container.
func customary() []int {
	return []int{
		unix.CAP_CHOWN, unix.CAP_DAC_OVERRIDE, unix.CAP_FSETID, unix.CAP_FOWNER, unix.CAP_MKNOD, unix.CAP_NET_RAW,
		unix.CAP_SETGID, unix.CAP_SETUID, unix.CAP_SETFCAP, unix.CAP_SETPCAP, unix.CAP_NET_BIND_SERVICE,
		unix.CAP_SYS_CHROOT, unix.CAP_KILL, unix.CAP_AUDIT_WRITE,
	}
}

// capability is the bit of a name, with or without CAP_ before it; ALL is no bit of its own.
func capability(name string) (uint64, error) {
	upper := strings.ToUpper(name)
	if upper == "ALL" {
		return 0, nil
	}
	i := slices.Index(capabilityNames(), strings.TrimPrefix(upper, "CAP_"))
	if i < 0 {
		return 0, fmt.Errorf("unknown capability %q", name)
	}
	return 1 << i, nil
}

// capabilityNames are in the order of their numbers (capabilities(7)).
func capabilityNames() []string {
	return strings.Fields(`CHOWN DAC_OVERRIDE DAC_READ_SEARCH FOWNER FSETID KILL SETGID SETUID SETPCAP
		LINUX_IMMUTABLE NET_BIND_SERVICE NET_BROADCAST NET_ADMIN NET_RAW IPC_LOCK IPC_OWNER SYS_MODULE SYS_RAWIO
		SYS_CHROOT SYS_PTRACE SYS_PACCT SYS_ADMIN SYS_BOOT SYS_NICE SYS_RESOURCE SYS_TIME SYS_TTY_CONFIG MKNOD LEASE
		AUDIT_WRITE AUDIT_CONTROL SETFCAP MAC_OVERRIDE MAC_ADMIN SYSLOG WAKE_ALARM BLOCK_SUSPEND AUDIT_READ PERFMON
		BPF CHECKPOINT_RESTORE`)
}
