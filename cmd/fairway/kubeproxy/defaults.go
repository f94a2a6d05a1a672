package kubeproxy

import (
	"net"
	"net/netip"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The ports of kube-proxy (pkg/cluster/ports).
const (
	healthzPort = "10256"
	metricsPort = "10249"
)

// Defaults is the Config with kube-proxy's value (Kubernetes 1.37) wherever none is said.
// The mode stays as it is: an empty one is for the caller to decide.
func (c Config) Defaults() Config {
	c.APIVersion, c.Kind = APIVersion, Kind
	or(&c.BindAddress, "0.0.0.0")
	host, local := "0.0.0.0", "127.0.0.1"
	if a, err := netip.ParseAddr(c.BindAddress); err == nil && a.Is6() {
		host, local = "::", "::1"
	}
	c.HealthzBindAddress = address(c.HealthzBindAddress, host, healthzPort)
	c.MetricsBindAddress = address(c.MetricsBindAddress, local, metricsPort)
	orPointer(&c.BindAddressHardFail, false)
	orPointer(&c.EnableProfiling, false)
	orPointer(&c.OOMScoreAdj, -999)
	orDuration(&c.ConfigSyncPeriod, 15*time.Minute)
	or(&c.ClientConnection.ContentType, "application/vnd.kubernetes.protobuf")
	or(&c.ClientConnection.QPS, 5)
	or(&c.ClientConnection.Burst, 10)
	or(&c.Logging.Format, "text")
	orPointer(&c.Logging.Verbosity, 0)
	if c.Logging.FlushFrequency == nil {
		c.Logging.FlushFrequency = "5s"
	}
	if c.FeatureGates == nil {
		c.FeatureGates = map[string]bool{}
	}
	c.defaultModes()
	c.defaultConntrack()
	return c
}

func (c *Config) defaultModes() {
	orPointer(&c.IPTables.MasqueradeBit, 14)
	orPointer(&c.IPTables.MasqueradeAll, false)
	orPointer(&c.IPTables.LocalhostNodePorts, true)
	orDuration(&c.IPTables.SyncPeriod, 30*time.Second)
	orDuration(&c.IPTables.MinSyncPeriod, time.Second)
	orDuration(&c.IPVS.SyncPeriod, 30*time.Second)
	orPointer(&c.IPVS.MinSyncPeriod, metav1.Duration{})
	orPointer(&c.IPVS.StrictARP, false)
	orPointer(&c.IPVS.TCPTimeout, metav1.Duration{})
	orPointer(&c.IPVS.TCPFinTimeout, metav1.Duration{})
	orPointer(&c.IPVS.UDPTimeout, metav1.Duration{})
	orPointer(&c.NFTables.MasqueradeBit, 14)
	orPointer(&c.NFTables.MasqueradeAll, false)
	orDuration(&c.NFTables.SyncPeriod, 30*time.Second)
	orDuration(&c.NFTables.MinSyncPeriod, time.Second)
}

func (c *Config) defaultConntrack() {
	orPointer(&c.Conntrack.MaxPerCore, 32<<10)
	orPointer(&c.Conntrack.Min, 128<<10)
	orPointer(&c.Conntrack.TCPEstablishedTimeout, metav1.Duration{Duration: 24 * time.Hour})
	orPointer(&c.Conntrack.TCPCloseWaitTimeout, metav1.Duration{Duration: time.Hour})
	orPointer(&c.Conntrack.TCPBeLiberal, false)
	orPointer(&c.Conntrack.UDPTimeout, metav1.Duration{})
	orPointer(&c.Conntrack.UDPStreamTimeout, metav1.Duration{})
}

// address adds the port to a host that has none; an empty one, which only a flag can say,
// stays: nothing is served.
func address(said *string, host, port string) *string {
	a := net.JoinHostPort(host, port)
	if said != nil {
		a = withPort(*said, port)
	}
	return &a
}

func withPort(a, port string) string {
	if _, err := netip.ParseAddr(a); err == nil {
		return net.JoinHostPort(a, port)
	}
	return a
}

func or[T comparable](v *T, value T) {
	var zero T
	if *v == zero {
		*v = value
	}
}

func orPointer[T any](p **T, value T) {
	if *p == nil {
		*p = &value
	}
}

// orDuration also takes a zero for nothing said, as kube-proxy does.
func orDuration(p **metav1.Duration, value time.Duration) {
	if *p == nil || (*p).Duration == 0 {
		*p = &metav1.Duration{Duration: value}
	}
}
