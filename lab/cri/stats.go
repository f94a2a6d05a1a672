package cri

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func (s *server) ContainerStats(
	_ context.Context, req *runtimeapi.ContainerStatsRequest,
) (*runtimeapi.ContainerStatsResponse, error) {
	c, err := s.container(req.GetContainerId())
	if err != nil {
		return nil, err
	}
	return &runtimeapi.ContainerStatsResponse{Stats: c.stats()}, nil
}

func (s *server) ListContainerStats(
	_ context.Context, req *runtimeapi.ListContainerStatsRequest,
) (*runtimeapi.ListContainerStatsResponse, error) {
	filter := req.GetFilter()
	resp := &runtimeapi.ListContainerStatsResponse{}
	for _, c := range s.allContainers() {
		if id := filter.GetId(); id != "" && id != c.id {
			continue
		}
		if id := filter.GetPodSandboxId(); id != "" && id != c.pod.id {
			continue
		}
		if _, err := c.running(); err == nil && selected(filter.GetLabelSelector(), c.config.GetLabels()) {
			resp.Stats = append(resp.Stats, c.stats())
		}
	}
	return resp, nil
}

// ListPodSandboxStats is empty: the kubelet's own numbers come from elsewhere.
func (s *server) ListPodSandboxStats(
	context.Context, *runtimeapi.ListPodSandboxStatsRequest,
) (*runtimeapi.ListPodSandboxStatsResponse, error) {
	return &runtimeapi.ListPodSandboxStatsResponse{}, nil
}

// stats has the first process's numbers only: there is no cgroup that would add up a container's.
func (c *container) stats() *runtimeapi.ContainerStats {
	out := &runtimeapi.ContainerStats{Attributes: &runtimeapi.ContainerAttributes{
		Id: c.id, Metadata: c.config.GetMetadata(), Labels: c.config.GetLabels(), Annotations: c.config.GetAnnotations(),
	}}
	proc, err := c.running()
	if err != nil {
		return out
	}
	now := time.Now().UnixNano()
	dir := fmt.Sprintf("/proc/%d", proc.cmd.Process.Pid)
	if pages, err := residentPages(dir + "/statm"); err == nil {
		bytes := pages * uint64(unix.Getpagesize())
		out.Memory = &runtimeapi.MemoryUsage{
			Timestamp: now, WorkingSetBytes: &runtimeapi.UInt64Value{Value: bytes}, RssBytes: &runtimeapi.UInt64Value{Value: bytes},
		}
	}
	if ticks, err := cpuTicks(dir + "/stat"); err == nil {
		// The kernel reports to user space in 1/100 s on every architecture (proc_pid_stat(5)).
		nanos := ticks * uint64(10*time.Millisecond)
		out.Cpu = &runtimeapi.CpuUsage{Timestamp: now, UsageCoreNanoSeconds: &runtimeapi.UInt64Value{Value: nanos}}
	}
	return out
}

// residentPages is the second number of statm.
func residentPages(path string) (uint64, error) {
	fields, err := readFields(path, 2)
	if err != nil {
		return 0, err
	}
	return strconv.ParseUint(fields[1], 10, 64)
}

// cpuTicks is user plus system time, fields 14 and 15 of stat; the name in field 2 may hold spaces, so they are counted
// from its closing parenthesis.
func cpuTicks(path string) (uint64, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	if len(fields) < 13 {
		return 0, fmt.Errorf("%s: %d fields", path, len(fields))
	}
	user, err := strconv.ParseUint(fields[11], 10, 64)
	if err != nil {
		return 0, err
	}
	system, err := strconv.ParseUint(fields[12], 10, 64)
	return user + system, err
}

func readFields(path string, least int) ([]string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	fields := strings.Fields(string(text))
	if len(fields) < least {
		return nil, fmt.Errorf("%s: %d fields", path, len(fields))
	}
	return fields, nil
}
