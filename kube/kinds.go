package kube

import (
	"fmt"
	"strings"
)

// kinds are those read here, by apiVersion.
func kinds() map[string][]string {
	return map[string][]string{
		"v1":                        {"Service", "Endpoints", "Node", "Pod", "Namespace", "Secret", "ConfigMap"},
		discovery:                   {"EndpointSlice"},
		"networking.k8s.io/v1":      {"Ingress", "IngressClass", "ServiceCIDR"},
		metallbVersion:              {"IPAddressPool", "L2Advertisement"},
		"networking.k8s.io/v1beta1": {"Ingress", "IngressClass", "ServiceCIDR"},
		"extensions/v1beta1":        {"Ingress"},
	}
}

const discovery = "discovery.k8s.io/v1"

// misspelt says which kind was meant where a document's is none of Kubernetes' and looks
// like one that is read here; empty for the many kinds this program has no use for.
func misspelt(version, kind string) string {
	for v, list := range kinds() {
		for _, k := range list {
			switch {
			case version == v && kind != k && near(kind, k):
				return fmt.Sprintf("kind %s of %s is not known; %s was meant?", kind, version, k)
			case kind == k && version != v && (near(version, v) || kubernetesGroup(version)) && !known(version, kind):
				return fmt.Sprintf("kind %s is not of apiVersion %q; write %s", kind, version, current(kind))
			}
		}
	}
	return ""
}

func known(version, kind string) bool {
	for _, k := range kinds()[version] {
		if k == kind {
			return true
		}
	}
	return false
}

// current is the apiVersion a kind should be written with.
func current(kind string) string {
	for _, v := range []string{"v1", discovery, "networking.k8s.io/v1", metallbVersion} {
		if known(v, kind) {
			return v
		}
	}
	return ""
}

// kubernetesGroup tells whether Kubernetes itself owns the group: another's Service or
// Ingress is another thing.
func kubernetesGroup(version string) bool {
	group, _, ok := strings.Cut(version, "/")
	if !ok {
		return true // the core's, or nothing written
	}
	return group == "apps" || group == "batch" || group == "extensions" || strings.HasSuffix(group, ".k8s.io") && strings.Count(group, ".") == 2 &&
		(strings.HasPrefix(group, "networking.") || strings.HasPrefix(group, "discovery."))
}

// near tells whether a word is another with one letter, in words of more than four two,
// put in, left out or replaced.
func near(a, b string) bool {
	most := 2
	if len(b) <= 4 {
		most = 1
	}
	return distance(a, b, most) <= most
}

// distance is Levenshtein's, or more than most.
func distance(a, b string, most int) int {
	if a == b {
		return 0
	}
	if d := len(a) - len(b); d > most || -d > most {
		return most + 1
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}
