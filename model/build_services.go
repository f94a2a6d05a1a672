package model

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// Changed is what is left of two lists without what they begin and end with alike. When
// values are shared from one generation to the next, few are left, and finding them
// costs a comparison of pointers each.
func Changed[T comparable](before, after []T) ([]T, []T) {
	for len(before) > 0 && len(after) > 0 && before[0] == after[0] {
		before, after = before[1:], after[1:]
	}
	for len(before) > 0 && len(after) > 0 && before[len(before)-1] == after[len(after)-1] {
		before, after = before[:len(before)-1], after[:len(after)-1]
	}
	return before, after
}

// buildServices builds the Services that any changed object is of, and takes over the
// others. The lists of one source come in one order, so that what changed is found by
// comparing them; lists in another order only make more of them look changed.
func buildServices(prev *Snapshot, from sources) []*Service {
	touched := prev.from.touched(from)
	bySvc, legacy := from.endpoints(touched)
	out := make([]*Service, 0, len(from.services))
	next := 0 // in prev.Services, which as a rule are the same
	for _, obj := range from.services {
		if next < len(prev.Services) && prev.Services[next].object == obj && !touched[prev.Services[next].Name] {
			out = append(out, prev.Services[next])
			next++
			continue
		}
		n := Name{obj.Namespace, obj.Name}
		at, known := prev.find(n)
		next = at
		if known {
			next++
			old := prev.Services[at]
			if old.object == obj && (!touched[n] || slices.Equal(old.slices, bySvc[n]) && old.legacy == legacy[n]) {
				out = append(out, old)
				continue
			}
		}
		ends, old := bySvc, legacy
		if !touched[n] { // one of two objects of a name, as files may have
			ends, old = from.endpoints(map[Name]bool{n: true})
		}
		out = append(out, buildService(obj, ends[n], old[n]))
	}
	sortByName(out, func(s *Service) Name { return s.Name })
	return out
}

// touched names the Services of all objects that are not in both.
func (s sources) touched(now sources) map[Name]bool {
	out := map[Name]bool{}
	before, after := Changed(s.services, now.services)
	for _, svc := range slices.Concat(before, after) {
		out[Name{svc.Namespace, svc.Name}] = true
	}
	beforeSlices, afterSlices := Changed(s.slices, now.slices)
	for _, sl := range slices.Concat(beforeSlices, afterSlices) {
		out[serviceOf(sl)] = true
	}
	beforeLegacy, afterLegacy := Changed(s.legacy, now.legacy)
	for _, ep := range slices.Concat(beforeLegacy, afterLegacy) {
		out[Name{ep.Namespace, ep.Name}] = true
	}
	return out
}

// serviceOf is the Service of a slice; a slice of none names one without a name.
func serviceOf(sl *discoveryv1.EndpointSlice) Name {
	return Name{sl.Namespace, sl.Labels[discoveryv1.LabelServiceName]}
}

// endpoints finds the slices and Endpoints of some Services.
func (s sources) endpoints(of map[Name]bool) (map[Name][]*discoveryv1.EndpointSlice, map[Name]*corev1.Endpoints) {
	bySvc, legacy := make(map[Name][]*discoveryv1.EndpointSlice, len(of)), map[Name]*corev1.Endpoints{}
	if len(of) == 0 {
		return bySvc, legacy
	}
	for _, sl := range s.slices {
		if n := serviceOf(sl); n.Name != "" && of[n] {
			bySvc[n] = append(bySvc[n], sl)
		}
	}
	for _, sl := range bySvc {
		sortSlices(sl)
	}
	for _, ep := range s.legacy {
		if n := (Name{ep.Namespace, ep.Name}); of[n] {
			legacy[n] = ep
		}
	}
	return bySvc, legacy
}
