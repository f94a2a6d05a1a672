package manifests

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"testing"
	"time"
)

// The Ingresses of the articles in the versions they were written for, which no API
// server knows any more (A11: ALB with target-type ip and a path /*; C4: GCE with a TLS
// Secret), served from files with real requests, whatever the Service's type.
const articleIngresses = `
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {type: %s, clusterIP: 10.96.0.90, ports: [{port: 80, targetPort: 8081, nodePort: 30090}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-1, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{name: "", port: 8081}]
endpoints: [{addresses: [10.244.1.5]}, {addresses: [10.244.1.6]}]
---
apiVersion: networking.k8s.io/v1beta1
kind: Ingress
metadata:
  name: ingress-alb
  annotations: {kubernetes.io/ingress.class: alb, alb.ingress.kubernetes.io/scheme: internet-facing, alb.ingress.kubernetes.io/target-type: ip}
spec:
  rules:
  - http: {paths: [{path: /*, backend: {serviceName: web, servicePort: 80}}]}
---
apiVersion: extensions/v1beta1
kind: Ingress
metadata: {name: gce, annotations: {kubernetes.io/ingress.class: gce}}
spec:
  tls: [{hosts: [web.example.com], secretName: web-tls}]
  rules:
  - host: web.example.com
    http: {paths: [{path: /*, backend: {serviceName: web, servicePort: 80}}]}
---
apiVersion: v1
kind: Secret
type: kubernetes.io/tls
metadata: {name: web-tls}
data: {tls.crt: %s, tls.key: %s}
`

func TestArticleIngresses(t *testing.T) {
	m := newMachine(t)
	m.config = "ingress: {classAnnotations: [alb, gce]}\n"
	for i, pod := range m.lab.Pods {
		name := fmt.Sprintf("pod %c", 'A'+i)
		var l net.Listener
		err := pod.Do(func() (err error) { l, err = net.Listen("tcp", ":8081"); return err })
		if err != nil {
			t.Fatal(err)
		}
		srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprintf(w, "%s saw %s %s\n", name, r.Host, r.URL.Path)
		})}
		go srv.Serve(l)
		t.Cleanup(func() { srv.Close() })
	}
	cert, key := selfSigned(t, "web.example.com")
	m.write("a.yaml", fmt.Sprintf(articleIngresses, "ClusterIP", cert, key))
	m.start("nftables")
	for _, typ := range []string{"ClusterIP", "NodePort", "LoadBalancer"} {
		m.write("a.yaml", fmt.Sprintf(articleIngresses, typ, cert, key))
		m.run("pod [AB] saw any.example.com /cart/1", "curl", "-s", "-m", "2", "-H", "Host: any.example.com", "http://127.0.0.1/cart/1")
		m.run("pod [AB] saw web.example.com /x", "curl", "-sk", "-m", "2", "--resolve", "web.example.com:443:127.0.0.1", "https://web.example.com/x")
	}
	m.run("CN = web.example.com", "sh", "-c", "echo | openssl s_client -connect 127.0.0.1:443 -servername web.example.com 2>/dev/null | grep subject")
	m.run("308", "curl", "-s", "-m", "2", "-o", "/dev/null", "-w", "%{http_code}", "-H", "Host: web.example.com", "http://127.0.0.1/x")
}

// selfSigned makes a certificate for host; both parts are base64 of PEM.
func selfSigned(t *testing.T, host string) (cert, key string) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: host}, DNSNames: []string{host},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &k.PublicKey, k)
	if err != nil {
		t.Fatal(err)
	}
	kder, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	b64 := func(kind string, der []byte) string {
		return base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
	}
	return b64("CERTIFICATE", der), b64("PRIVATE KEY", kder)
}
