package kubeproxy

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Keywords of nodePortAddresses (Kubernetes 1.37).
const (
	Primary   = "primary"
	Localhost = "localhost"
	All       = "all"
)

// Validate finds what kube-proxy would refuse, with its paths and words. c has Defaults.
// Modes that only Fairway has are taken too; ipvs needs its gate, as in 1.37.
func (c *Config) Validate(modes []string) error {
	if !c.Gate("KubeProxyIPVS") {
		modes = slices.DeleteFunc(slices.Clone(modes), func(m string) bool { return m == "ipvs" })
	}
	root := field.NewPath(Kind)
	errs := rangeOf(root.Child("KubeProxyIPTablesConfiguration", "MasqueradeBit"), c.IPTables.MasqueradeBit, 0, 31)
	switch c.Mode {
	case "ipvs":
		errs = append(errs, c.IPVS.validate(root.Child("KubeProxyIPVSConfiguration"))...)
	case "nftables":
		errs = append(errs, rangeOf(root.Child("KubeProxyNFTablesConfiguration", "MasqueradeBit"), c.NFTables.MasqueradeBit, 0, 31)...)
	}
	linux := root.Child("KubeProxyLinuxConfiguration")
	errs = append(errs, c.Conntrack.validate(linux.Child("KubeProxyConntrackConfiguration"))...)
	errs = append(errs, rangeOf(linux.Child("OOMScoreAdj"), c.OOMScoreAdj, -1000, 1000)...)
	errs = append(errs, validMode(root.Child("Mode", "ProxyMode"), c.Mode, modes)...)
	if c.ClientConnection.Burst < 0 {
		errs = append(errs, field.Invalid(root.Child("ClientConnection", "Burst"), int64(c.ClientConnection.Burst), "must be greater than or equal to 0"))
	}
	errs = append(errs, c.validatePeriods(root)...)
	if !isIP(c.BindAddress) {
		errs = append(errs, field.Invalid(root.Child("BindAddress"), c.BindAddress, "not a valid textual representation of an IP address"))
	}
	errs = append(errs, hostPort(root.Child("HealthzBindAddress"), *c.HealthzBindAddress)...)
	errs = append(errs, hostPort(root.Child("MetricsBindAddress"), *c.MetricsBindAddress)...)
	errs = append(errs, nodePortAddresses(root.Child("NodePortAddresses"), c.NodePortAddresses)...)
	errs = append(errs, c.validateDetectLocal(root)...)
	return errs.ToAggregate()
}

func rangeOf(path *field.Path, v *int32, low, high int32) field.ErrorList {
	if v != nil && (*v < low || *v > high) {
		return field.ErrorList{field.Invalid(path, *v, fmt.Sprintf("must be within the range [%d, %d]", low, high))}
	}
	return nil
}

func validMode(path *field.Path, mode string, modes []string) field.ErrorList {
	if mode == "" || slices.Contains(modes, mode) {
		return nil
	}
	return field.ErrorList{field.Invalid(path, mode, fmt.Sprintf("must be %s or blank (blank means the best-available proxy [currently iptables])", strings.Join(slices.Sorted(slices.Values(modes)), ", ")))}
}

func (c *Config) validatePeriods(root *field.Path) (errs field.ErrorList) {
	sync, least := c.Periods()
	positive := func(name string, d *metav1.Duration) {
		if d.Duration <= 0 {
			errs = append(errs, field.Invalid(root.Child(name), *d, "must be greater than 0"))
		}
	}
	positive("ConfigSyncPeriod", c.ConfigSyncPeriod)
	positive("SyncPeriod", sync)
	errs = append(errs, notNegative(root.Child("MinSyncPeriod"), least)...)
	if least.Duration > sync.Duration {
		errs = append(errs, field.Invalid(root.Child("SyncPeriod"), *least, "must be greater than or equal to "+root.Child("MinSyncPeriod").String()))
	}
	return errs
}

func notNegative(path *field.Path, d *metav1.Duration) field.ErrorList {
	if d != nil && d.Duration < 0 {
		return field.ErrorList{field.Invalid(path, *d, "must be greater than or equal to 0")}
	}
	return nil
}

func (v *IPVS) validate(path *field.Path) field.ErrorList {
	errs := notNegative(path.Child("TCPTimeout"), v.TCPTimeout)
	errs = append(errs, notNegative(path.Child("TCPFinTimeout"), v.TCPFinTimeout)...)
	errs = append(errs, notNegative(path.Child("UDPTimeout"), v.UDPTimeout)...)
	for i, c := range v.ExcludeCIDRs {
		if !isCIDR(c) {
			errs = append(errs, field.Invalid(path.Child("ExcludeCidrs").Index(i), c, "must be a valid CIDR"))
		}
	}
	return errs
}

func (c *Conntrack) validate(path *field.Path) (errs field.ErrorList) {
	for _, f := range []struct {
		name string
		v    *int32
	}{{"MaxPerCore", c.MaxPerCore}, {"Min", c.Min}} {
		if f.v != nil && *f.v < 0 {
			errs = append(errs, field.Invalid(path.Child(f.name), *f.v, "must be greater than or equal to 0"))
		}
	}
	errs = append(errs, notNegative(path.Child("TCPEstablishedTimeout"), c.TCPEstablishedTimeout)...)
	errs = append(errs, notNegative(path.Child("TCPCloseWaitTimeout"), c.TCPCloseWaitTimeout)...)
	errs = append(errs, notNegative(path.Child("UDPTimeout"), c.UDPTimeout)...)
	return append(errs, notNegative(path.Child("UDPStreamTimeout"), c.UDPStreamTimeout)...)
}

func hostPort(path *field.Path, s string) (errs field.ErrorList) {
	if s == "" {
		return nil
	}
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		return field.ErrorList{field.Invalid(path, s, "must be IP:port")}
	}
	if !isIP(host) {
		errs = append(errs, field.Invalid(path, host, "must be a valid IP"))
	}
	if p, err := strconv.Atoi(port); err != nil || p < 1 || p > 65535 {
		errs = append(errs, field.Invalid(path, port, "must be a valid port"))
	}
	return errs
}

func nodePortAddresses(path *field.Path, list []string) (errs field.ErrorList) {
	for i, a := range list {
		switch {
		case a == Primary || a == Localhost || a == All:
			if slices.Contains(list[:i], a) {
				errs = append(errs, field.Duplicate(path.Index(i), a))
			}
		case !isCIDR(a):
			errs = append(errs, field.Invalid(path.Index(i), a, "must be a valid CIDR or one of the keywords 'primary', 'localhost', 'all'"))
		}
	}
	return errs
}

func (c *Config) validateDetectLocal(root *field.Path) field.ErrorList {
	path := root.Child("DetectLocalConfiguration")
	switch c.DetectLocalMode {
	case "NodeCIDR", "":
		return nil
	case "BridgeInterface":
		return notEmpty(path.Child("InterfaceName"), c.DetectLocal.BridgeInterface)
	case "InterfaceNamePrefix":
		return notEmpty(path.Child("InterfacePrefix"), c.DetectLocal.InterfaceNamePrefix)
	case "ClusterCIDR":
		return clusterCIDRs(path.Child("ClusterCIDRs"), c.ClusterCIDR)
	}
	return field.ErrorList{field.NotSupported(root.Child("DetectLocalMode"), c.DetectLocalMode,
		[]string{"ClusterCIDR", "NodeCIDR", "BridgeInterface", "InterfaceNamePrefix", ""})}
}

func notEmpty(path *field.Path, s string) field.ErrorList {
	if s == "" {
		return field.ErrorList{field.Invalid(path, s, "must not be empty")}
	}
	return nil
}

func clusterCIDRs(path *field.Path, text string) (errs field.ErrorList) {
	if text == "" {
		return nil
	}
	list := strings.Split(text, ",")
	const pair = "must be a either a single CIDR or dual-stack pair of CIDRs (e.g. [10.100.0.0/16, fde4:8dba:82e1::/48]"
	if len(list) > 2 {
		return field.ErrorList{field.Invalid(path, list, pair)}
	}
	for i, c := range list {
		if !isCIDR(c) {
			errs = append(errs, field.Invalid(path.Index(i), c, "must be a valid CIDR block (e.g. 10.100.0.0/16 or fde4:8dba:82e1::/48)"))
		}
	}
	if len(errs) == 0 && len(list) == 2 && strings.Contains(list[0], ":") == strings.Contains(list[1], ":") {
		errs = append(errs, field.Invalid(path, list, pair))
	}
	return errs
}

func isIP(s string) bool {
	_, err := netip.ParseAddr(s)
	return err == nil
}

func isCIDR(s string) bool {
	_, err := netip.ParsePrefix(s)
	return err == nil
}
