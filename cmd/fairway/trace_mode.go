package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"fairway/cmd/fairway/kubeproxy"
	"fairway/kube"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// The ConfigMap of deploy/fairway.yaml and its key.
const (
	configNamespace = "fairway-system"
	configMap       = "fairway"
	configKey       = "fairway.yaml"
)

// modeInForce puts the mode in force into raw, for commands that are about what runs:
// --backend's, else the configuration file's, else that of the cluster's ConfigMap, else
// what the proxy of this machine says. What had to be taken on trust is noted.
func (s *source) modeInForce(c *cobra.Command, raw *rawConfig) error {
	if s.backend != "" {
		return nil // load puts it in
	}
	named, err := s.modeInFile()
	if err != nil {
		return err
	}
	if named == "" {
		named = s.modeInCluster(c.Context(), *raw)
	}
	if named != "" {
		raw.Proxy.Mode = named
		return nil
	}
	mode, url := modeOfMachine(c.Context(), raw.Proxy.MetricsBindAddress)
	switch {
	case mode == "":
		fmt.Fprintf(c.ErrOrStderr(), "note: mode %s is assumed: --backend says another\n", raw.Proxy.Mode)
	case !s.here:
		fmt.Fprintf(c.ErrOrStderr(), "note: mode %s is this machine's (%s): --backend says another\n", mode, url)
	}
	raw.Proxy.Mode = cmp.Or(mode, raw.Proxy.Mode)
	return nil
}

// modeInFile is the mode --config names, empty when there is no file or it names none.
func (s *source) modeInFile() (string, error) {
	if s.config == "" {
		return "", nil
	}
	data, err := os.ReadFile(s.config)
	if err != nil {
		return "", fmt.Errorf("configuration: %w", err)
	}
	return modeIn(data), nil
}

// modeIn is the mode a configuration names; a KubeProxyConfiguration that names none
// means one all the same. What cannot be read names none: who takes the file reports it.
func modeIn(data []byte) string {
	if theirs := kubeproxy.Find(data); theirs != nil {
		var raw rawConfig
		if _, err := readKubeProxy(theirs, &raw); err != nil {
			return ""
		}
		return raw.Proxy.Mode
	}
	var named struct {
		Proxy struct {
			Mode string `json:"mode"`
		} `json:"proxy"`
	}
	if yaml.Unmarshal(data, &named) != nil {
		return ""
	}
	return named.Proxy.Mode
}

// modeInCluster is the mode the ConfigMap names, where objects come from an API server;
// empty when there is no such ConfigMap or it may not be read.
func (s *source) modeInCluster(ctx context.Context, raw rawConfig) string {
	kubeconfig, server := cmp.Or(s.kubeconfig, os.Getenv("KUBECONFIG")), s.server
	if s.here {
		kubeconfig, server = cmp.Or(s.kubeconfig, raw.Kubeconfig, os.Getenv("KUBECONFIG")), cmp.Or(server, raw.Server)
	}
	if len(s.files) > 0 || s.here && raw.Manifests != "" || kubeconfig == "" && !s.here {
		return ""
	}
	rest, err := kube.ClientConfig(kubeconfig, server)
	if err != nil {
		return ""
	}
	clients, err := newClients(rest)
	if err != nil {
		return ""
	}
	ctx, stop := context.WithTimeout(ctx, 5*time.Second)
	defer stop()
	m, err := clients.core.ConfigMaps(configNamespace).Get(ctx, configMap, metav1.GetOptions{})
	if err != nil {
		return ""
	}
	return modeIn([]byte(m.Data[configKey]))
}

// modeOfMachine asks the proxy that runs here, which may be a kube-proxy; empty when none
// answers, or not with a mode.
func modeOfMachine(ctx context.Context, bind string) (mode, url string) {
	host, port, err := net.SplitHostPort(bind)
	if err != nil {
		return "", ""
	}
	if host == "" || host == "0.0.0.0" || host == "::" {
		host = "127.0.0.1"
	}
	url = "http://" + net.JoinHostPort(host, port) + "/proxyMode"
	ctx, stop := context.WithTimeout(ctx, 500*time.Millisecond)
	defer stop()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", url
	}
	direct := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}} // past any HTTP_PROXY
	resp, err := direct.Do(req)
	if err != nil {
		return "", url
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 64))
	mode = strings.TrimSpace(string(body))
	if _, unknown := modeOf(mode); err != nil || unknown != nil || resp.StatusCode != http.StatusOK {
		return "", url
	}
	return mode, url
}
