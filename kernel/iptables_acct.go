package kernel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"fairway/proxy/iptables"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// Messages and attributes of linux/netfilter/nfnetlink_acct.h.
const (
	acctNew, acctGet, acctDel = 0, 1, 3
	acctName, acctPackets     = 1, 2
)

// accounts are the objects rules count with, by kube-proxy's names.
func accounts() []string { return []string{iptables.CounterInvalid, iptables.CounterLocalhost} }

// CreateAccounts makes the objects that rules count packets with (nfacct) and tries a
// rule with one; that they are there already is no error. They belong to the network
// namespace, whatever the family or variant.
func (t *IPTables) CreateAccounts(try func(input string) error) error {
	c, err := t.acct()
	if err != nil {
		return err
	}
	defer c.Close()
	for _, name := range accounts() {
		if _, err := c.Execute(acctMessage(acctNew, netlink.Acknowledge|netlink.Create|netlink.Excl, name)); err != nil && !errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("nfacct object %s: %w", name, err)
		}
	}
	if err := try(iptables.CounterProbe()); err != nil {
		return fmt.Errorf("xt_nfacct: %w", err)
	}
	return nil
}

// DeleteAccounts removes the objects that no rule uses any more.
func (t *IPTables) DeleteAccounts() error {
	c, err := t.acct()
	if err != nil {
		return err
	}
	defer c.Close()
	for _, name := range accounts() {
		_, err := c.Execute(acctMessage(acctDel, netlink.Acknowledge, name))
		if err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.EBUSY) && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.EOPNOTSUPP) {
			return fmt.Errorf("nfacct object %s: %w", name, err)
		}
	}
	return nil
}

// Accounts reads the packets counted by each object that is there.
func (t *IPTables) Accounts() (map[string]uint64, error) {
	c, err := t.acct()
	if err != nil {
		return nil, err
	}
	defer c.Close()
	replies, err := c.Execute(acctMessage(acctGet, netlink.Dump, ""))
	if err != nil {
		return nil, fmt.Errorf("nfacct objects: %w", err)
	}
	out := map[string]uint64{}
	for _, m := range replies {
		if len(m.Data) < nfgenmsgLen {
			continue
		}
		name, packets := "", uint64(0)
		eachAttr(m.Data[nfgenmsgLen:], func(typ uint16, v []byte) {
			switch {
			case typ == acctName:
				name = strings.TrimRight(string(v), "\x00")
			case typ == acctPackets && len(v) == 8:
				packets = binary.BigEndian.Uint64(v)
			}
		})
		out[name] = packets
	}
	return out, nil
}

func (t *IPTables) acct() (*netlink.Conn, error) {
	c, err := netlink.Dial(unix.NETLINK_NETFILTER, &netlink.Config{NetNS: t.netns})
	if err != nil {
		return nil, fmt.Errorf("nfacct netlink socket: %w", err)
	}
	return c, nil
}

func acctMessage(typ uint16, flags netlink.HeaderFlags, name string) netlink.Message {
	a := attrs{[]byte{unix.AF_UNSPEC, unix.NFNETLINK_V0, 0, 0}}
	if name != "" {
		a.str(acctName, name)
	}
	return netlink.Message{Header: netlink.Header{Type: netlink.HeaderType(unix.NFNL_SUBSYS_ACCT<<8 | typ), Flags: netlink.Request | flags}, Data: a.b}
}
