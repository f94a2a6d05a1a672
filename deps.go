//go:build deps

package deps

import (
	_ "github.com/google/nftables"
	_ "github.com/miekg/dns"
	_ "github.com/prometheus/client_golang/prometheus/promhttp"
	_ "github.com/spf13/cobra"
	_ "github.com/vishvananda/netlink"
	_ "github.com/vishvananda/netns"
	_ "golang.org/x/net/http2"
	_ "golang.org/x/sys/unix"
	_ "golang.org/x/tools/txtar"
	_ "k8s.io/api/core/v1"
	_ "k8s.io/apimachinery/pkg/types"
	_ "k8s.io/client-go/kubernetes"
	_ "k8s.io/client-go/informers"
	_ "k8s.io/client-go/dynamic"
	_ "sigs.k8s.io/yaml"
)
