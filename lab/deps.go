//go:build deps

// Package lab pins the libraries the lab is built from, so that go.mod lists
// them whichever package is built first. It takes nothing in, gives nothing
// out and is never compiled: the build tag keeps it to `go mod tidy`.
package lab

import (
	_ "github.com/google/cadvisor/lib/model"
	_ "github.com/google/nftables"
	_ "github.com/spf13/cobra"
	_ "github.com/spf13/pflag"
	_ "github.com/vishvananda/netlink"
	_ "github.com/vishvananda/netns"
	_ "go.etcd.io/etcd/server/v3/embed"
	_ "golang.org/x/sys/unix"
	_ "google.golang.org/grpc"
	_ "k8s.io/api/core/v1"
	_ "k8s.io/apimachinery/pkg/types"
	_ "k8s.io/client-go/kubernetes"
	_ "k8s.io/component-base/logs/api/v1"
	_ "k8s.io/cri-api/pkg/apis/runtime/v1"
	_ "k8s.io/cri-streaming/pkg/streaming"
	_ "k8s.io/kubectl/pkg/cmd"
	_ "k8s.io/kubernetes/cmd/kube-apiserver/app"
	_ "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	_ "k8s.io/kubernetes/cmd/kube-proxy/app"
	_ "k8s.io/kubernetes/cmd/kube-scheduler/app"
	_ "k8s.io/kubernetes/cmd/kubelet/app"
	_ "k8s.io/kubernetes/pkg/kubelet/cadvisor/testing"
	_ "k8s.io/kubernetes/pkg/kubelet/cm"
	_ "k8s.io/utils/exec"
	_ "sigs.k8s.io/yaml"
)
