package main

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// TestModeInForce: each source of the mode is taken only where those before it say
// nothing, and what is taken on trust is noted.
func TestModeInForce(t *testing.T) {
	t.Setenv("KUBECONFIG", "")
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	serve := func(path, contentType, body string) *httptest.Server {
		mux := http.NewServeMux()
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", contentType)
			fmt.Fprint(w, body)
		})
		s := httptest.NewServer(mux)
		t.Cleanup(s.Close)
		return s
	}
	api := serve("/api/v1/namespaces/fairway-system/configmaps/fairway", "application/json",
		`{"apiVersion":"v1","kind":"ConfigMap","data":{"fairway.yaml":"server: https://x\nproxy:\n  mode: ipvs\n"}}`)
	bare := serve("/", "application/json", `{"apiVersion":"v1","kind":"ConfigMap"}`)
	kubeconfig := func(name string, s *httptest.Server) string {
		return file(name, "apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: "+s.URL+"}}]\n"+
			"contexts: [{name: c, context: {cluster: c, user: c}}]\nusers: [{name: c, user: {}}]\ncurrent-context: c\n")
	}
	withMap, without := kubeconfig("with", api), kubeconfig("without", bare)
	proxy := strings.TrimPrefix(serve("/proxyMode", "text/plain", "ebpf").URL, "http://")
	other := strings.TrimPrefix(serve("/proxyMode", "text/plain", "something else").URL, "http://")
	silent := "127.0.0.1:1"
	userspace := file("own.yaml", "proxy: {mode: userspace}\n")
	none := file("none.yaml", "proxy: {masqueradeAll: true}\n")
	theirs := file("theirs.yaml", "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n")
	for _, c := range []struct {
		s          source
		bind       string
		want, note string
	}{
		{source{backend: "iptables", config: userspace}, proxy, "nftables", ""}, // load's part
		{source{config: userspace, kubeconfig: withMap}, proxy, "userspace", ""},
		{source{config: theirs, kubeconfig: withMap}, proxy, "iptables", ""},
		{source{config: none, kubeconfig: withMap}, proxy, "ipvs", ""},
		{source{kubeconfig: withMap}, proxy, "ipvs", ""},
		{source{kubeconfig: withMap, here: true}, proxy, "ipvs", ""},
		{source{kubeconfig: withMap, files: []string{"a"}}, proxy, "ebpf", "this machine's"},
		{source{kubeconfig: without}, proxy, "ebpf", "this machine's"},
		{source{files: []string{"a"}, here: true}, proxy, "ebpf", ""},
		{source{files: []string{"a"}}, silent, "nftables", "note: mode nftables is assumed: --backend says another"},
		{source{files: []string{"a"}}, other, "nftables", "is assumed"},
		{source{files: []string{"a"}}, "", "nftables", "is assumed"},
	} {
		raw, err := readConfig("")
		if err != nil {
			t.Fatal(err)
		}
		raw.Proxy.MetricsBindAddress = c.bind
		var stderr bytes.Buffer
		cmd := &cobra.Command{}
		cmd.SetErr(&stderr)
		cmd.SetContext(context.Background())
		if err := c.s.modeInForce(cmd, &raw); err != nil {
			t.Errorf("%+v: %v", c.s, err)
		}
		if raw.Proxy.Mode != c.want || !strings.Contains(stderr.String(), c.note) || c.note == "" && stderr.Len() > 0 {
			t.Errorf("%+v: mode %s, want %s; note %q, want %q", c.s, raw.Proxy.Mode, c.want, stderr.String(), c.note)
		}
	}
}
