package controlplane

import (
	"strconv"

	"fairway/lab/state"
	"fairway/lab/topology"
)

// serverFlags are kube-apiserver's. Aggregator routing makes webhooks and
// extension servers go to Pod addresses: the control plane's namespace has no
// service proxy.
func serverFlags(dir state.Dir, f topology.Family) []string {
	at := f.Fabric()[0].String()
	return []string{
		"--etcd-servers=" + etcdURL,
		"--bind-address=" + at,
		"--advertise-address=" + at,
		"--secure-port=" + strconv.Itoa(topology.ServerPort),
		"--tls-cert-file=" + dir.PKI("apiserver.crt"),
		"--tls-private-key-file=" + dir.PKI("apiserver.key"),
		"--client-ca-file=" + dir.PKI("ca.crt"),
		"--kubelet-client-certificate=" + dir.PKI("kubelet-client.crt"),
		"--kubelet-client-key=" + dir.PKI("kubelet-client.key"),
		"--kubelet-certificate-authority=" + dir.PKI("ca.crt"),
		"--kubelet-preferred-address-types=InternalIP",
		"--proxy-client-cert-file=" + dir.PKI("front-proxy-client.crt"),
		"--proxy-client-key-file=" + dir.PKI("front-proxy-client.key"),
		"--requestheader-client-ca-file=" + dir.PKI("front-proxy-ca.crt"),
		"--requestheader-allowed-names=front-proxy-client",
		"--requestheader-username-headers=X-Remote-User",
		"--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file=" + dir.PKI("sa.key"),
		"--service-account-signing-key-file=" + dir.PKI("sa.key"),
		"--service-cluster-ip-range=" + f.ServiceRange(),
		"--authorization-mode=Node,RBAC",
		"--enable-admission-plugins=NodeRestriction",
		"--allow-privileged=true",
		"--enable-aggregator-routing=true",
	}
}

// managerFlags are kube-controller-manager's. Its default of 20 requests a
// second would hold back a new node's Pod range by five seconds.
func managerFlags(dir state.Dir, f topology.Family) []string {
	config := dir.PKI("controller-manager.kubeconfig")
	return []string{
		"--kubeconfig=" + config,
		"--authentication-kubeconfig=" + config,
		"--authorization-kubeconfig=" + config,
		"--leader-elect=false",
		"--secure-port=0",
		"--controllers=*,-horizontal-pod-autoscaler-controller",
		"--use-service-account-credentials=true",
		"--kube-api-qps=1000",
		"--kube-api-burst=2000",
		"--root-ca-file=" + dir.PKI("ca.crt"),
		"--service-account-private-key-file=" + dir.PKI("sa.key"),
		"--cluster-signing-cert-file=" + dir.PKI("ca.crt"),
		"--cluster-signing-key-file=" + dir.PKI("ca.key"),
		"--allocate-node-cidrs=true",
		"--cluster-cidr=" + f.PodRange(),
		"--service-cluster-ip-range=" + f.ServiceRange(),
		"--node-monitor-period=2s",
		"--node-monitor-grace-period=20s",
		// The default is a directory of the host.
		"--flex-volume-plugin-dir=" + dir.Path("flex"),
	}
}

func schedulerFlags(dir state.Dir) []string {
	config := dir.PKI("scheduler.kubeconfig")
	return []string{
		"--kubeconfig=" + config,
		"--authentication-kubeconfig=" + config,
		"--authorization-kubeconfig=" + config,
		"--leader-elect=false",
		"--secure-port=0",
		"--kube-api-qps=500",
		"--kube-api-burst=1000",
	}
}
