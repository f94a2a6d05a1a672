package main

import (
	"fmt"
	"net/netip"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
)

// The cluster's addresses: nothing but the benchmark's namespaces has them.
const (
	nodeName    = "node1"
	nodeAddr    = "172.30.0.11"
	clientAddr  = "10.255.0.2"
	serverAddr  = "10.254.0.1"
	podCIDR     = "10.128.0.0/9"  // client and endpoints alike: nobody is masqueraded
	backends    = "10.128.0.0/10" // of them the endpoints, all behind the one server
	serviceCIDR = "10.96.0.0/12"
	mirrored    = "10.128.0.0/12" // of the same size, in backends
	servicePort = 80
	targetPort  = 8080
	// perService is the room an endpoint list has to grow in.
	perService = 16
)

// vip is the address of Service i; no Service has the first, the API's own.
func vip(i int) netip.AddrPort {
	n := uint32(10)<<24 | uint32(96)<<16 + uint32(i) + 2
	return netip.AddrPortFrom(addrOf(n), servicePort)
}

// endpoint is the address of endpoint e of Service i; no two Services share one.
func endpoint(i, e int) netip.AddrPort {
	return netip.AddrPortFrom(addrOf(uint32(10)<<24|uint32(128)<<16+uint32(i*perService+e)+1), targetPort)
}

// translated is where stage.translate finds an endpoint's address.
func translated(to netip.AddrPort) netip.AddrPort {
	b := to.Addr().As4()
	b[1] -= 128 - 96
	return netip.AddrPortFrom(netip.AddrFrom4(b), to.Port())
}

func addrOf(n uint32) netip.Addr {
	return netip.AddrFrom4([4]byte{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)})
}

func serviceName(i int) types.NamespacedName {
	return types.NamespacedName{Namespace: fmt.Sprintf("team-%02d", i%40), Name: fmt.Sprintf("svc-%05d", i)}
}

// service is Service i as an API server hands it out, with all that kubectl apply and
// the controllers leave on it: what a proxy keeps of that is its own affair.
func service(i int) *corev1.Service {
	n := serviceName(i)
	ip := vip(i).Addr().String()
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Name: n.Name, Namespace: n.Namespace, CreationTimestamp: created(),
			Labels:      map[string]string{"app.kubernetes.io/name": n.Name, "app.kubernetes.io/managed-by": "helm"},
			Annotations: map[string]string{"meta.helm.sh/release-name": n.Name, "meta.helm.sh/release-namespace": n.Namespace},
			ManagedFields: managed("helm", `{"f:metadata":{"f:annotations":{".":{},"f:meta.helm.sh/release-name":{},"f:meta.helm.sh/release-namespace":{}},`+
				`"f:labels":{".":{},"f:app.kubernetes.io/managed-by":{},"f:app.kubernetes.io/name":{}}},"f:spec":{"f:internalTrafficPolicy":{},"f:ports":{".":{},`+
				`"k:{\"port\":80,\"protocol\":\"TCP\"}":{".":{},"f:name":{},"f:port":{},"f:protocol":{},"f:targetPort":{}}},"f:selector":{},"f:sessionAffinity":{},"f:type":{}}}`),
		},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeClusterIP, ClusterIP: ip, ClusterIPs: []string{ip},
			IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol}, IPFamilyPolicy: ptr.To(corev1.IPFamilyPolicySingleStack),
			InternalTrafficPolicy: ptr.To(corev1.ServiceInternalTrafficPolicyCluster), SessionAffinity: corev1.ServiceAffinityNone,
			Selector: map[string]string{"app.kubernetes.io/name": n.Name},
			Ports:    []corev1.ServicePort{{Name: "http", Port: servicePort, Protocol: corev1.ProtocolTCP, TargetPort: intstr.FromInt32(targetPort)}},
		},
	}
}

// slice is the EndpointSlice of Service i with so many ready endpoints on 100 nodes.
func slice(i, endpoints int) *discoveryv1.EndpointSlice {
	n := serviceName(i)
	s := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Name: n.Name + "-k7x2p", GenerateName: n.Name + "-", Namespace: n.Namespace, CreationTimestamp: created(), Generation: 1,
			Labels: map[string]string{discoveryv1.LabelServiceName: n.Name, discoveryv1.LabelManagedBy: "endpointslice-controller.k8s.io",
				"app.kubernetes.io/name": n.Name, "app.kubernetes.io/managed-by": "helm"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Service", Name: n.Name,
				UID: types.UID(fmt.Sprintf("11111111-0000-4000-8000-%012d", i)), Controller: ptr.To(true), BlockOwnerDeletion: ptr.To(true)}},
			ManagedFields: managed("kube-controller-manager", `{"f:addressType":{},"f:endpoints":{},"f:metadata":{"f:generateName":{},"f:labels":{".":{},`+
				`"f:app.kubernetes.io/managed-by":{},"f:app.kubernetes.io/name":{},"f:endpointslice.kubernetes.io/managed-by":{},"f:kubernetes.io/service-name":{}},`+
				`"f:ownerReferences":{".":{},"k:{\"uid\":\"11111111-0000-4000-8000-`+fmt.Sprintf("%012d", i)+`\"}":{}}},"f:ports":{}}`),
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: ptr.To("http"), Port: ptr.To(int32(targetPort)), Protocol: ptr.To(corev1.ProtocolTCP)}},
	}
	for e := range endpoints {
		k := i*perService + e
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{
			Addresses:  []string{endpoint(i, e).Addr().String()},
			Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true), Serving: ptr.To(true), Terminating: ptr.To(false)},
			NodeName:   ptr.To("worker-" + strconv.Itoa(k%100)), Zone: ptr.To("zone-" + string(rune('a'+k%3))),
			TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: n.Namespace, Name: fmt.Sprintf("%s-6d4b75cb6d-%05d", n.Name, e),
				UID: types.UID(fmt.Sprintf("22222222-0000-4000-8000-%012d", k))},
		})
	}
	return s
}

func node() *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: nodeName, CreationTimestamp: created(), Labels: map[string]string{corev1.LabelHostname: nodeName}},
		Spec:       corev1.NodeSpec{PodCIDR: podCIDR, PodCIDRs: []string{podCIDR}},
		Status: corev1.NodeStatus{
			Addresses:  []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: nodeAddr}, {Type: corev1.NodeHostName, Address: nodeName}},
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
		},
	}
}

func serviceRange() *networkingv1.ServiceCIDR {
	return &networkingv1.ServiceCIDR{
		ObjectMeta: metav1.ObjectMeta{Name: "kubernetes", CreationTimestamp: created()},
		Spec:       networkingv1.ServiceCIDRSpec{CIDRs: []string{serviceCIDR}},
	}
}

// created is one time for everything, so that two runs see the same bytes.
func created() metav1.Time {
	return metav1.NewTime(time.Date(2026, 11, 1, 8, 0, 0, 0, time.UTC))
}

func managed(by, fields string) []metav1.ManagedFieldsEntry {
	t := created()
	return []metav1.ManagedFieldsEntry{{Manager: by, Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1",
		Time: &t, FieldsType: "FieldsV1", FieldsV1: &metav1.FieldsV1{Raw: []byte(fields)}}}
}
