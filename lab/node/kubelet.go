package node

import (
	"context"
	"fmt"
	"time"

	"fairway/lab/topology"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	kubeletapp "k8s.io/kubernetes/cmd/kubelet/app"
	"k8s.io/kubernetes/cmd/kubelet/app/options"
	kubeletconfig "k8s.io/kubernetes/pkg/kubelet/apis/config"
	"k8s.io/kubernetes/pkg/util/oom"
)

// runKubelet runs the real kubelet. Three of its dependencies are replaced,
// because they would manage the machine's cgroups and read its size; all the
// rest (probes, volumes, mounts, status, eviction, its server) is its own.
func runKubelet(ctx context.Context, c Config) error {
	server, err := options.NewKubeletServer()
	if err != nil {
		return fmt.Errorf("kubelet options: %w", err)
	}
	setFlags(&server.KubeletFlags, c)
	setConfiguration(&server.KubeletConfiguration, c)
	deps, err := kubeletapp.UnsecuredDependencies(ctx, server, utilfeature.DefaultFeatureGate)
	if err != nil {
		return fmt.Errorf("kubelet dependencies: %w", err)
	}
	deps.ContainerManager = newContainerManager()
	deps.CAdvisorInterface = newMachine(c.Name())
	// The real one would give the kubelet the score -999, and every container
	// inherits it.
	deps.OOMAdjuster = oom.NewFakeOOMAdjuster()
	return kubeletapp.Run(ctx, server, deps, utilfeature.DefaultFeatureGate)
}

func setFlags(f *options.KubeletFlags, c Config) {
	f.KubeConfig = c.path("kubeconfig")
	f.HostnameOverride = c.Name()
	f.NodeIP = topology.Join(c.Lab.Family.Node(c.Number))
	f.RootDirectory = c.path("kubelet")
	f.CertDirectory = c.path("kubelet-pki")
}

func setConfiguration(k *kubeletconfig.KubeletConfiguration, c Config) {
	k.ContainerRuntimeEndpoint = "unix://" + c.socket()
	k.ResolverConfig = c.path("resolv.conf")
	k.ClusterDNS = c.Lab.Family.DNS()[:1]
	k.ClusterDomain = "cluster.local"
	k.VolumePluginDir = c.path("volume-plugins")
	k.Address = c.Lab.Family.Unspecified()
	k.ReadOnlyPort = 0

	k.TLSCertFile, k.TLSPrivateKeyFile = c.path("kubelet.crt"), c.path("kubelet.key")
	k.Authentication.Anonymous.Enabled = false
	k.Authentication.X509.ClientCAFile = c.Dir.PKI("ca.crt")
	k.Authentication.Webhook.Enabled = true
	k.Authorization.Mode = kubeletconfig.KubeletAuthorizationModeWebhook

	// No cgroups, no swap rules, no eviction by the machine's disk: the node
	// shares the machine with others and is not its owner.
	k.CgroupsPerQOS = false
	k.EnforceNodeAllocatable = nil
	k.FailCgroupV1 = false
	k.FailSwapOn = false
	k.EvictionHard = map[string]string{}
	k.ImageGCHighThresholdPercent = 100
	k.LocalStorageCapacityIsolation = false
	k.MakeIPTablesUtilChains = false
	k.MaxOpenFiles = 65536

	// Quicker than the defaults, so that a change is seen in seconds and a
	// dead node is noticed within the controller manager's grace period.
	k.SyncFrequency = metav1.Duration{Duration: 10 * time.Second}
	k.NodeLeaseDurationSeconds = 20
	k.KubeAPIQPS, k.KubeAPIBurst = 100, 200
	k.RegistryPullQPS = 0
	k.SerializeImagePulls = false
}
