package cri

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"slices"
	"sync"
	"time"

	"fairway/lab/hostport"
	"fairway/lab/podnet"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/cri-streaming/pkg/streaming"
)

// server implements both CRI services. What is not implemented answers Unimplemented.
type server struct {
	runtimeapi.UnimplementedRuntimeServiceServer
	runtimeapi.UnimplementedImageServiceServer

	cfg     Config
	net     *podnet.Network
	ports   *hostport.Table
	streams streaming.Server

	mu         sync.Mutex
	sandboxes  map[string]*sandbox
	containers map[string]*container
	pulled     map[string]time.Time
}

func newServer(cfg Config, network *podnet.Network, ports *hostport.Table) *server {
	return &server{
		cfg: cfg, net: network, ports: ports,
		sandboxes:  map[string]*sandbox{},
		containers: map[string]*container{},
		pulled:     map[string]time.Time{},
	}
}

func (s *server) Version(context.Context, *runtimeapi.VersionRequest) (*runtimeapi.VersionResponse, error) {
	return &runtimeapi.VersionResponse{
		Version: "0.1.0", RuntimeName: "fairway-lab", RuntimeVersion: "1.0.0", RuntimeApiVersion: "v1",
	}, nil
}

func (s *server) Status(context.Context, *runtimeapi.StatusRequest) (*runtimeapi.StatusResponse, error) {
	network := &runtimeapi.RuntimeCondition{Type: runtimeapi.NetworkReady, Status: s.net.Ready()}
	if !network.Status {
		network.Reason = "NoPodCIDR"
		network.Message = "the node has no pod CIDR yet"
	}
	ready := &runtimeapi.RuntimeCondition{Type: runtimeapi.RuntimeReady, Status: true}
	return &runtimeapi.StatusResponse{
		Status: &runtimeapi.RuntimeStatus{Conditions: []*runtimeapi.RuntimeCondition{ready, network}},
		RuntimeHandlers: []*runtimeapi.RuntimeHandler{
			{Features: &runtimeapi.RuntimeHandlerFeatures{RecursiveReadOnlyMounts: true}},
		},
		Features: &runtimeapi.RuntimeFeatures{SupplementalGroupsPolicy: true},
	}, nil
}

func (s *server) RuntimeConfig(context.Context, *runtimeapi.RuntimeConfigRequest) (*runtimeapi.RuntimeConfigResponse, error) {
	return &runtimeapi.RuntimeConfigResponse{
		Linux: &runtimeapi.LinuxRuntimeConfiguration{CgroupDriver: runtimeapi.CgroupDriver_CGROUPFS},
	}, nil
}

func (s *server) UpdateRuntimeConfig(
	_ context.Context, req *runtimeapi.UpdateRuntimeConfigRequest,
) (*runtimeapi.UpdateRuntimeConfigResponse, error) {
	cidrs := req.GetRuntimeConfig().GetNetworkConfig().GetPodCidr()
	if err := s.net.SetCIDRs(cidrs); err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	return &runtimeapi.UpdateRuntimeConfigResponse{}, nil
}

func newID() string {
	var b [32]byte
	rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

func (s *server) sandbox(id string) (*sandbox, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p, ok := s.sandboxes[id]; ok {
		return p, nil
	}
	return nil, status.Errorf(codes.NotFound, "pod sandbox %q not found", id)
}

func (s *server) container(id string) (*container, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c, ok := s.containers[id]; ok {
		return c, nil
	}
	return nil, status.Errorf(codes.NotFound, "container %q not found", id)
}

func (s *server) allSandboxes() []*sandbox {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []*sandbox
	for _, p := range s.sandboxes {
		out = append(out, p)
	}
	slices.SortFunc(out, func(a, b *sandbox) int { return b.created.Compare(a.created) })
	return out
}

func (s *server) allContainers() []*container {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []*container
	for _, c := range s.containers {
		out = append(out, c)
	}
	slices.SortFunc(out, func(a, b *container) int { return b.created.Compare(a.created) })
	return out
}

func (s *server) containersOf(sandboxID string) []*container {
	all := s.allContainers()
	return slices.DeleteFunc(all, func(c *container) bool { return c.pod.id != sandboxID })
}

// selected says whether labels hold all of want, as in the CRI's label selectors.
func selected(want, labels map[string]string) bool {
	for key, value := range want {
		if labels[key] != value {
			return false
		}
	}
	return true
}
