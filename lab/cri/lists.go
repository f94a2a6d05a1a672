package cri

import (
	"context"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func (p *sandbox) state() runtimeapi.PodSandboxState {
	if p.ready() {
		return runtimeapi.PodSandboxState_SANDBOX_READY
	}
	return runtimeapi.PodSandboxState_SANDBOX_NOTREADY
}

func (s *server) ListPodSandbox(
	_ context.Context, req *runtimeapi.ListPodSandboxRequest,
) (*runtimeapi.ListPodSandboxResponse, error) {
	filter := req.GetFilter()
	resp := &runtimeapi.ListPodSandboxResponse{}
	for _, p := range s.allSandboxes() {
		state := p.state()
		if id := filter.GetId(); id != "" && id != p.id {
			continue
		}
		if want := filter.GetState(); want != nil && want.GetState() != state {
			continue
		}
		if !selected(filter.GetLabelSelector(), p.config.GetLabels()) {
			continue
		}
		resp.Items = append(resp.Items, &runtimeapi.PodSandbox{
			Id: p.id, Metadata: p.config.GetMetadata(), State: state, CreatedAt: p.created.UnixNano(),
			Labels: p.config.GetLabels(), Annotations: p.config.GetAnnotations(),
		})
	}
	return resp, nil
}

func (s *server) PodSandboxStatus(
	_ context.Context, req *runtimeapi.PodSandboxStatusRequest,
) (*runtimeapi.PodSandboxStatusResponse, error) {
	p, err := s.sandbox(req.GetPodSandboxId())
	if err != nil {
		return nil, err
	}
	return &runtimeapi.PodSandboxStatusResponse{Status: &runtimeapi.PodSandboxStatus{
		Id: p.id, Metadata: p.config.GetMetadata(), State: p.state(), CreatedAt: p.created.UnixNano(),
		Network: p.network(),
		Linux:   &runtimeapi.LinuxPodSandboxStatus{Namespaces: &runtimeapi.Namespace{Options: p.options()}},
		Labels:  p.config.GetLabels(), Annotations: p.config.GetAnnotations(),
	}}, nil
}

// network is empty for a Pod in the node's network: the kubelet knows the node's addresses.
func (p *sandbox) network() *runtimeapi.PodSandboxNetworkStatus {
	out := &runtimeapi.PodSandboxNetworkStatus{}
	if p.link == nil {
		return out
	}
	for i, ip := range p.link.IPs {
		if i == 0 {
			out.Ip = ip.String()
			continue
		}
		out.AdditionalIps = append(out.AdditionalIps, &runtimeapi.PodIP{Ip: ip.String()})
	}
	return out
}

func (s *server) ListContainers(
	_ context.Context, req *runtimeapi.ListContainersRequest,
) (*runtimeapi.ListContainersResponse, error) {
	filter := req.GetFilter()
	resp := &runtimeapi.ListContainersResponse{}
	for _, c := range s.allContainers() {
		c.mu.Lock()
		state := c.state()
		c.mu.Unlock()
		if id := filter.GetId(); id != "" && id != c.id {
			continue
		}
		if id := filter.GetPodSandboxId(); id != "" && id != c.pod.id {
			continue
		}
		if want := filter.GetState(); want != nil && want.GetState() != state {
			continue
		}
		if !selected(filter.GetLabelSelector(), c.config.GetLabels()) {
			continue
		}
		ref := c.config.GetImage().GetImage()
		resp.Containers = append(resp.Containers, &runtimeapi.Container{
			Id: c.id, PodSandboxId: c.pod.id, Metadata: c.config.GetMetadata(), Image: c.config.GetImage(),
			ImageRef: ref, ImageId: ref, State: state, CreatedAt: c.created.UnixNano(),
			Labels: c.config.GetLabels(), Annotations: c.config.GetAnnotations(),
		})
	}
	return resp, nil
}

func (s *server) ContainerStatus(
	_ context.Context, req *runtimeapi.ContainerStatusRequest,
) (*runtimeapi.ContainerStatusResponse, error) {
	c, err := s.container(req.GetContainerId())
	if err != nil {
		return nil, err
	}
	who, err := c.user()
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	ref := c.config.GetImage().GetImage()
	st := &runtimeapi.ContainerStatus{
		Id: c.id, Metadata: c.config.GetMetadata(), State: c.state(), CreatedAt: c.created.UnixNano(),
		Image: c.config.GetImage(), ImageRef: ref, ImageId: ref, Reason: c.reason, Message: c.message,
		ExitCode: int32(c.exit), Labels: c.config.GetLabels(), Annotations: c.config.GetAnnotations(),
		Mounts: c.config.GetMounts(), LogPath: c.logPath(), User: who.status(),
		Resources: &runtimeapi.ContainerResources{Linux: c.config.GetLinux().GetResources()},
	}
	if !c.started.IsZero() {
		st.StartedAt = c.started.UnixNano()
	}
	if !c.finished.IsZero() {
		st.FinishedAt = c.finished.UnixNano()
	}
	return &runtimeapi.ContainerStatusResponse{Status: st}, nil
}

func (i identity) status() *runtimeapi.ContainerUser {
	user := &runtimeapi.LinuxContainerUser{Uid: int64(i.uid), Gid: int64(i.gid)}
	for _, g := range i.groups {
		user.SupplementalGroups = append(user.SupplementalGroups, int64(g))
	}
	return &runtimeapi.ContainerUser{Linux: user}
}

// UpdateContainerResources has nothing to update: the lab sets no limits.
func (s *server) UpdateContainerResources(
	context.Context, *runtimeapi.UpdateContainerResourcesRequest,
) (*runtimeapi.UpdateContainerResourcesResponse, error) {
	return &runtimeapi.UpdateContainerResourcesResponse{}, nil
}

// UpdatePodSandboxResources likewise.
func (s *server) UpdatePodSandboxResources(
	context.Context, *runtimeapi.UpdatePodSandboxResourcesRequest,
) (*runtimeapi.UpdatePodSandboxResourcesResponse, error) {
	return &runtimeapi.UpdatePodSandboxResourcesResponse{}, nil
}
