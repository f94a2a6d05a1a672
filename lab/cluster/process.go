package cluster

import (
	"fmt"
	"net/netip"
	"os"

	"fairway/lab/state"
	"fairway/lab/topology"

	v1 "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	sigsyaml "sigs.k8s.io/yaml"
)

// asProcess turns one document of deploy/fairway.yaml into what it is where
// Fairway runs beside the kubelet: no DaemonSet, and Services whose endpoints
// are the nodes themselves, as there are no Pods to select.
func asProcess(doc []byte, lab state.Lab) ([][]byte, error) {
	var head metav1.PartialObjectMetadata
	if err := sigsyaml.Unmarshal(doc, &head); err != nil {
		return nil, err
	}
	switch head.Kind {
	case "DaemonSet":
		return nil, nil
	case "Service":
	default:
		return [][]byte{doc}, nil
	}
	var svc v1.Service
	if err := sigsyaml.Unmarshal(doc, &svc); err != nil {
		return nil, err
	}
	svc.Spec.Selector = nil
	edited, err := sigsyaml.Marshal(&svc)
	if err != nil {
		return nil, err
	}
	docs := [][]byte{edited}
	for i := range lab.Family.Fabric() {
		slice, err := sigsyaml.Marshal(nodeSlice(svc, lab, i))
		if err != nil {
			return nil, err
		}
		docs = append(docs, slice)
	}
	return docs, nil
}

// nodeSlice lists every node as an endpoint of svc, with its addresses of the
// lab's first or second family.
func nodeSlice(svc v1.Service, lab state.Lab, family int) *discovery.EndpointSlice {
	s := &discovery.EndpointSlice{
		TypeMeta: metav1.TypeMeta{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSlice"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: svc.Namespace,
			Name:      fmt.Sprintf("%s-nodes-%d", svc.Name, family+1),
			Labels: map[string]string{discovery.LabelServiceName: svc.Name,
				discovery.LabelManagedBy: "fairway-lab"},
		},
		AddressType: addressType(lab.Family.Node(1)[family]),
	}
	yes := true
	for _, n := range lab.Nodes {
		name := topology.NodeName(n)
		s.Endpoints = append(s.Endpoints, discovery.Endpoint{
			Addresses:  []string{lab.Family.Node(n)[family].String()},
			NodeName:   &name,
			Conditions: discovery.EndpointConditions{Ready: &yes, Serving: &yes},
		})
	}
	for _, p := range svc.Spec.Ports {
		target := p.Port
		if p.TargetPort.Type == intstr.Int && p.TargetPort.IntVal != 0 {
			target = p.TargetPort.IntVal
		}
		protocol := p.Protocol
		if protocol == "" {
			protocol = v1.ProtocolTCP
		}
		s.Ports = append(s.Ports, discovery.EndpointPort{Name: &p.Name, Port: &target, Protocol: &protocol})
	}
	return s
}

func addressType(a netip.Addr) discovery.AddressType {
	if a.Is6() {
		return discovery.AddressTypeIPv6
	}
	return discovery.AddressTypeIPv4
}

// writeProcessConfig keeps Fairway's configuration where its processes read
// it, with the lab's own values in it.
func (l Lab) writeProcessConfig(lab *state.Lab) error {
	text, err := editConfig("", *lab)
	if err != nil {
		return err
	}
	lab.Config = l.Dir.Path("fairway-process.yaml")
	return os.WriteFile(lab.Config, []byte(text), 0o644)
}
