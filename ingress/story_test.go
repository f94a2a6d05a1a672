package ingress_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"fairway/ingress"
	"fairway/model"
	"fairway/test/story"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// TestStories runs testdata: beside objects a story may have `services` (one Service
// and its slice per line), `certificates` (one TLS Secret per line), `settings`
// (ingress.Config) and `requests` (URLs).
func TestStories(t *testing.T) {
	for _, s := range story.Glob(t, "testdata/*.txtar") {
		t.Run(filepath.Base(s.Path), func(t *testing.T) {
			extend(t, s)
			var cfg ingress.Config
			if err := yaml.UnmarshalStrict([]byte(s.Section("settings")), &cfg); err != nil {
				t.Fatal(err)
			}
			snap, problems := s.Snapshot()
			table, more := ingress.Build(nil, snap, cfg)
			s.Check(t, "table", table.Text())
			s.Check(t, "requests", answers(t, table, s.Section("requests")))
			s.Check(t, "trace", traces(t, table, s.Section("traces")))
			s.Check(t, "problems", story.Problems(append(problems, more...)))
			for seed := range uint64(5) {
				again, _ := model.Build(snap, s.Shuffled(seed))
				other, _ := ingress.Build(table, again, cfg)
				if d := ingress.Diff(table, other); len(d) > 0 {
					t.Errorf("in another order the table differs: %q", d)
				}
			}
		})
	}
}

func answers(t *testing.T, table *ingress.Table, urls string) string {
	var b strings.Builder
	for _, url := range strings.Fields(urls) {
		o, err := table.Trace(url)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "%s => %s\n", url, answer(o))
	}
	return b.String()
}

func answer(o ingress.Outcome) string {
	switch {
	case o.Status == 308:
		return "308 " + o.Location
	case o.Route == nil:
		return strconv.Itoa(o.Status)
	case o.Status != 0:
		return strconv.Itoa(o.Status) + " " + o.Route.Backend.Target.String()
	}
	return o.Route.Backend.Target.String()
}

func traces(t *testing.T, table *ingress.Table, urls string) string {
	var b strings.Builder
	for _, url := range strings.Fields(urls) {
		o, err := table.Trace(url)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintln(&b, url)
		for _, step := range o.Steps {
			fmt.Fprintf(&b, "  %s: %s\n", step.Where, step.What)
		}
	}
	return b.String()
}

// extend reads the short sections into objects.
func extend(t *testing.T, s *story.Story) {
	for _, line := range lines(s.Section("services")) {
		svc, slice := service(t, line)
		s.Objects.Services = append(s.Objects.Services, svc)
		s.Objects.EndpointSlices = append(s.Objects.EndpointSlices, slice)
	}
	for _, line := range lines(s.Section("certificates")) {
		f := strings.Fields(line)
		crt, key := certificate(t, strings.Split(f[1], ","))
		if len(f) > 2 && f[2] == "mismatched" {
			_, key = certificate(t, []string{"other"})
		}
		ns, name, _ := strings.Cut(f[0], "/")
		s.Objects.Secrets = append(s.Objects.Secrets, &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}, Type: corev1.SecretTypeTLS,
			Data: map[string][]byte{"tls.crt": crt, "tls.key": key},
		})
	}
}

func lines(section string) []string {
	return strings.FieldsFunc(section, func(c rune) bool { return c == '\n' })
}

// service reads `NS/NAME PORTNAME:PORT:TARGET ADDR…`; TYPE= may stand for the type.
func service(t *testing.T, line string) (*corev1.Service, *discoveryv1.EndpointSlice) {
	f := strings.Fields(line)
	ns, name, _ := strings.Cut(f[0], "/")
	p := strings.Split(f[1], ":")
	if len(p) != 3 {
		t.Fatalf("service %q: want PORTNAME:PORT:TARGET", line)
	}
	port, _ := strconv.ParseInt(p[1], 10, 32)
	target, _ := strconv.ParseInt(p[2], 10, 32)
	target32 := int32(target)
	meta := metav1.ObjectMeta{Namespace: ns, Name: name}
	svc := &corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{ClusterIP: "10.96.0.1",
		Ports: []corev1.ServicePort{{Name: p[0], Port: int32(port), Protocol: corev1.ProtocolTCP}}}}
	meta.Labels = map[string]string{discoveryv1.LabelServiceName: name}
	slice := &discoveryv1.EndpointSlice{ObjectMeta: meta, AddressType: discoveryv1.AddressTypeIPv4,
		Ports: []discoveryv1.EndpointPort{{Name: &p[0], Port: &target32}}}
	for _, a := range f[2:] {
		if typ, ok := strings.CutPrefix(a, "type="); ok {
			svc.Spec.Type = corev1.ServiceType(typ)
			continue
		}
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{a}})
	}
	return svc, slice
}

// certificate makes a self-signed pair for the names.
func certificate(t testing.TB, names []string) (crt, key []byte) {
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: names[0]}, NotAfter: time.Now().Add(time.Hour)}
	if cn, ok := strings.CutPrefix(names[0], "CN="); ok {
		tmpl.Subject.CommonName = cn
	} else {
		tmpl.DNSNames = names
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &k.PublicKey, k)
	if err != nil {
		t.Fatal(err)
	}
	priv, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: priv})
}
