package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
)

// Server says where the API server is found and under which addresses its
// certificate must be valid.
type Server struct {
	URL string
	IPs []netip.Addr
}

// WriteControlPlane fills dir with everything the control plane reads: two
// authorities, the API server's certificates, the service account key and the
// kubeconfigs admin, controller-manager, scheduler and proxy. Each identity is
// one that Kubernetes' built-in roles already know, so no role is applied.
func WriteControlPlane(dir string, s Server) error {
	ca, err := NewAuthority(dir, "ca")
	if err != nil {
		return err
	}
	front, err := NewAuthority(dir, "front-proxy-ca")
	if err != nil {
		return err
	}
	if err := writeServing(dir, ca, front, s); err != nil {
		return err
	}
	if err := writeServiceAccountKey(dir); err != nil {
		return err
	}
	for file, r := range map[string]Request{
		"admin":              {CommonName: "fairway-lab-admin", Organization: "system:masters"},
		"controller-manager": {CommonName: "system:kube-controller-manager"},
		"scheduler":          {CommonName: "system:kube-scheduler"},
		"proxy":              {CommonName: "system:kube-proxy"},
	} {
		if err := ca.writeKubeconfig(filepath.Join(dir, file+".kubeconfig"), s.URL, r); err != nil {
			return err
		}
	}
	return nil
}

func writeServing(dir string, ca, front *Authority, s Server) error {
	names := []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc",
		"kubernetes.default.svc.cluster.local"}
	for file, issue := range map[string]struct {
		by *Authority
		r  Request
	}{
		"apiserver":          {ca, Request{CommonName: "kube-apiserver", Names: names, IPs: s.IPs}},
		"kubelet-client":     {ca, Request{CommonName: "kube-apiserver-kubelet-client", Organization: "system:masters"}},
		"front-proxy-client": {front, Request{CommonName: "front-proxy-client"}},
	} {
		pair, err := issue.by.Issue(issue.r)
		if err != nil {
			return err
		}
		if err := pair.Write(dir, file); err != nil {
			return err
		}
	}
	return nil
}

func writeServiceAccountKey(dir string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("service account key: %w", err)
	}
	private, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return fmt.Errorf("service account key: %w", err)
	}
	block := pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: private})
	if err := os.WriteFile(filepath.Join(dir, "sa.key"), block, 0o600); err != nil {
		return fmt.Errorf("service account key: %w", err)
	}
	return nil
}

// WriteNode writes the serving pair (kubelet.crt, kubelet.key) and the
// kubeconfig of one node's kubelet to nodeDir, signed by the authority in dir.
func WriteNode(dir, nodeDir, node, serverURL string, ips []netip.Addr) error {
	ca, err := LoadAuthority(dir, "ca")
	if err != nil {
		return err
	}
	serving, err := ca.Issue(Request{CommonName: "system:node:" + node, Organization: "system:nodes",
		Names: []string{node}, IPs: ips})
	if err != nil {
		return err
	}
	if err := serving.Write(nodeDir, "kubelet"); err != nil {
		return err
	}
	return ca.writeKubeconfig(filepath.Join(nodeDir, "kubeconfig"), serverURL,
		Request{CommonName: "system:node:" + node, Organization: "system:nodes"})
}

// WriteAdmin writes an administrator's kubeconfig that finds the API server at
// serverURL, another road to the same server.
func WriteAdmin(dir, file, serverURL string) error {
	ca, err := LoadAuthority(dir, "ca")
	if err != nil {
		return err
	}
	return ca.writeKubeconfig(file, serverURL,
		Request{CommonName: "fairway-lab-admin", Organization: "system:masters"})
}

func (a *Authority) writeKubeconfig(file, serverURL string, r Request) error {
	pair, err := a.Issue(r)
	if err != nil {
		return err
	}
	b64 := base64.StdEncoding.EncodeToString
	text := fmt.Sprintf(`apiVersion: v1
kind: Config
clusters:
- name: fairway-lab
  cluster: {server: %q, certificate-authority-data: %s}
users:
- name: %q
  user: {client-certificate-data: %s, client-key-data: %s}
contexts:
- name: fairway-lab
  context: {cluster: fairway-lab, user: %q}
current-context: fairway-lab
`, serverURL, b64(a.certPEM), r.CommonName, b64(pair.Cert), b64(pair.Key), r.CommonName)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return fmt.Errorf("%s: %w", r.CommonName, err)
	}
	return nil
}
