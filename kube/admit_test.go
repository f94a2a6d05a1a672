package kube

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestFilesAdmit: what an API server would refuse or fill in is told of files, by object,
// field and the value at fault; what is right stays silent.
func TestFilesAdmit(t *testing.T) {
	svc := func(spec string) string {
		return "apiVersion: v1\nkind: Service\nmetadata: {name: a}\nspec: " + spec + "\n"
	}
	slice := func(labels, rest string) string {
		return "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: a-1, labels: {" + labels + "}}\n" + rest + "\n"
	}
	const labelled = "kubernetes.io/service-name: a"
	for _, c := range []struct{ text, want string }{ // want: FIELD WORD, empty for none
		{svc("{clusterIP: 10.96.0.1, ports: [{port: 80}]}"), ""},
		{svc("{clusterIP: None}"), ""},
		{svc("{type: ExternalName, externalName: a.example}"), ""},
		{svc("{type: LoadBalancer, clusterIP: 10.96.0.1, ports: [{port: 80}]}"), ""},
		{svc("{clusterIPs: [10.96.0.1], type: NodePort, ports: [{port: 80, nodePort: 30080}]}"), ""},
		{svc("{ports: [{port: 80}]}"), "spec.clusterIP allocates"},
		{svc("{type: NodePort, ports: [{port: 80, nodePort: 30080}]}"), "spec.clusterIP node ports"},
		{svc("{type: LoadBalancer, ports: [{port: 80}]}"), "spec.clusterIP allocates"},
		{svc("{type: NodePort, clusterIP: None, ports: [{port: 80, nodePort: 30080}]}"), "spec.clusterIP headless"},
		{svc("{type: NodePort, clusterIP: 10.96.0.1, ports: [{port: 80}]}"), "spec.ports[0].nodePort 30000"},
		{svc("{clusterIP: 10.96.0.1, ports: [{port: 80, nodePort: 30080}]}"), "spec.ports[0].nodePort 30080"},
		{svc("{clusterIP: 10.96.0.1}"), "spec.ports needs a port"},
		{svc("{clusterIP: 10.96.0.1, ports: [{port: 80, name: x}, {port: 81}]}"), "spec.ports[1].name several"},
		{svc("{clusterIP: 10.96.0.1, ports: [{port: 80, name: x}, {port: 80, name: z}]}"), "spec.ports[1].port 80"},
		{svc("{clusterIP: 10.96.0.1, ports: [{port: 80, name: x}, {port: 80, protocol: UDP, name: z}]}"), ""},
		{svc("{clusterIP: 10.96.0.1, ports: [{port: 80, protocol: udp}]}"), "spec.ports[0].protocol \"udp\""},
		{svc("{clusterIP: 10.96.0.1, type: Nodeport, ports: [{port: 80}]}"), "spec.type \"Nodeport\" is not ClusterIP, NodePort, LoadBalancer or ExternalName"},
		{svc("{clusterIP: 10.96.0.1, externalTrafficPolicy: local, ports: [{port: 80}]}"), "spec.externalTrafficPolicy \"local\" is not Cluster or Local"},
		{svc("{clusterIP: 10.96.0.1, internalTrafficPolicy: local, ports: [{port: 80}]}"), "spec.internalTrafficPolicy \"local\""},
		{svc("{clusterIP: 10.96.0.1, sessionAffinity: ClientIp, ports: [{port: 80}]}"), "spec.sessionAffinity \"ClientIp\" is not None or ClientIP"},
		{svc("{clusterIP: 10.96.0.1, sessionAffinity: ClientIP, sessionAffinityConfig: {clientIP: {timeoutSeconds: 0}}, ports: [{port: 80}]}"), "spec.sessionAffinityConfig.clientIP.timeoutSeconds 86400"},
		{svc("{clusterIP: 10.96.0.1, ipFamilyPolicy: DualStack, ports: [{port: 80}]}"), "spec.ipFamilyPolicy \"DualStack\""},
		{svc("{clusterIP: 10.96.0.1, ipFamilies: [ipv4], ports: [{port: 80}]}"), "spec.ipFamilies[0] \"ipv4\""},
		{slice(labelled, "addressType: IPv4"), ""},
		{slice("", "addressType: IPv4"), "metadata.labels kubernetes.io/service-name"},
		{slice(labelled, "addressType: ipv4"), "addressType \"ipv4\""},
		{slice(labelled, "addressType: IPv4\nports: [{port: 80, protocol: TPC}]"), "ports[0].protocol \"TPC\""},
		{slice(labelled, "addressType: IPv4\nports: [{port: 80800}]"), "ports[0].port 80800"},
		{"apiVersion: v1\nkind: Endpoints\nmetadata: {name: a}\nsubsets: [{ports: [{port: 0}]}]\n", "subsets[0].ports[0].port 0"},
		{"apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {name: a}\nspec: {rules: [{http: {paths: [{path: /}]}}]}\n", "spec.rules[0].http.paths[0].pathType Prefix"},
	} {
		path := filepath.Join(t.TempDir(), "a.yaml")
		write(t, path, c.text)
		_, problems, err := (&Files{Paths: []string{path}}).Read()
		if err != nil {
			t.Fatal(err)
		}
		field, word, _ := strings.Cut(c.want, " ")
		if c.want == "" && len(problems) > 0 || c.want != "" && (len(problems) != 1 || problems[0].Field != field || !strings.Contains(problems[0].Message, word) || problems[0].Object.Name.Name[0] != 'a') {
			t.Errorf("%s\n\tgives %v, want %q", c.text, problems, c.want)
		}
	}
}

// TestMisspeltKinds: near misses of what is read are told, the other kinds of a cluster
// are nobody's business.
func TestMisspeltKinds(t *testing.T) {
	for _, wrong := range []string{"v1 Servce", "v1 service", "v1 Endpoint", "networking.k8s.io/v1 Ingres", "discovery.k8s.io/v1 EndpointSlices",
		"metallb.io/v1beta1 IPAdressPool", "apps/v1 Service", "v1 Ingress", "v1 EndpointSlice", "dicovery.k8s.io/v1 EndpointSlice", " Service", "networking.k8s.io/v2 Ingress"} {
		version, kind, _ := strings.Cut(wrong, " ")
		_, problems := Decode("x.yaml", []byte("apiVersion: "+version+"\nkind: "+kind+"\nmetadata: {name: a}\n"))
		if len(problems) != 1 || problems[0].Field != "kind" || !strings.Contains(problems[0].Message, "kind "+kind) {
			t.Errorf("%s gives %v", wrong, problems)
		}
	}
	for _, right := range []string{"apps/v1 Deployment", "apps/v1 ReplicaSet", "v1 ServiceAccount", "v1 Event", "v1 PodTemplate", "batch/v1 Job", "rbac.authorization.k8s.io/v1 Role",
		"apiextensions.k8s.io/v1 CustomResourceDefinition", "metallb.io/v1beta1 BGPAdvertisement", "metallb.io/v1beta1 BGPPeer", "networking.k8s.io/v1 NetworkPolicy",
		"networking.k8s.io/v1 IPAddress", "serving.knative.dev/v1 Service", "config.openshift.io/v1 Ingress", "metrics.k8s.io/v1beta1 PodMetrics", "gateway.networking.k8s.io/v1 Gateway"} {
		version, kind, _ := strings.Cut(right, " ")
		if _, problems := Decode("x.yaml", []byte("apiVersion: "+version+"\nkind: "+kind+"\nmetadata: {name: a}\n")); len(problems) > 0 {
			t.Errorf("%s gives %v", right, problems)
		}
	}
	for version, list := range kinds() {
		for _, kind := range list {
			if slices.ContainsFunc(list, func(k string) bool { return k != kind && near(kind, k) }) || misspelt(version, kind) != "" {
				t.Errorf("%s %s is taken for another", version, kind)
			}
		}
	}
}

// TestFilesEmptyDirectory: a directory without manifests is told by its name, until it has
// one.
func TestFilesEmptyDirectory(t *testing.T) {
	dir := t.TempDir()
	f := &Files{Paths: []string{dir}}
	_, problems, err := f.Read()
	if err != nil || len(problems) != 1 || !strings.Contains(problems[0].String(), dir) {
		t.Fatalf("%v %v", problems, err)
	}
	write(t, filepath.Join(dir, "a.yaml"), service("a"))
	if _, problems, _ := f.Read(); len(problems) > 0 {
		t.Fatal(problems)
	}
}
