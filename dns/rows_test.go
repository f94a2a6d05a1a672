package dns_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"fairway/dns"
	"fairway/kube"
	"fairway/model"

	"golang.org/x/tools/txtar"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestRows asks about one cluster what the files under testdata/rows list, one
// question a line: NAME TYPE[,TYPE…] => the answer's records, then after " + " the
// additional ones; or NODATA, NXDOMAIN, forward. A chain of CNAMEs that ends in
// nothing is followed by NODATA, one that goes on upstream by "then NAME".
func TestRows(t *testing.T) {
	paths, err := filepath.Glob("testdata/rows/*.txtar")
	if err != nil || len(paths) == 0 {
		t.Fatal("no rows", err)
	}
	asked := 0
	for _, path := range paths {
		archive, err := txtar.ParseFile(path)
		if err != nil {
			t.Fatal(err)
		}
		zone := rowsZone(t, archive)
		for _, f := range archive.Files {
			if f.Name != "rows" {
				continue
			}
			for _, row := range lines(string(f.Data)) {
				asked += checkRow(t, path, zone, row)
			}
		}
	}
	if asked < 250 {
		t.Errorf("only %d questions asked", asked)
	}
}

func rowsZone(t *testing.T, a *txtar.Archive) *dns.Zone {
	t.Helper()
	yaml, err := os.ReadFile("testdata/rows/cluster.yaml")
	if err != nil {
		t.Fatal(err)
	}
	objects, problems := kube.Decode("cluster.yaml", yaml)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	cfg := dns.DefaultConfig()
	for _, f := range a.Files {
		if f.Name == "Corefile" {
			cfg, _, problems = dns.ParseCorefile(string(f.Data))
			if len(problems) > 0 {
				t.Fatal(problems)
			}
		}
	}
	snap, _ := model.Build(nil, objects)
	zone, _ := dns.Build(nil, snap, cfg)
	return zone
}

// checkRow asks a row's questions and returns how many there were.
func checkRow(t *testing.T, path string, z *dns.Zone, row string) int {
	t.Helper()
	ask, want, ok := strings.Cut(row, " => ")
	name, types, ok2 := strings.Cut(ask, " ")
	if !ok || !ok2 {
		t.Fatalf("%s: %q is not NAME TYPE => ANSWER", path, row)
	}
	asked := strings.Split(strings.TrimSpace(types), ",")
	for _, typ := range asked {
		q := dns.Question{Name: name}
		var err error
		if q.Type, err = dns.ParseType(typ); err != nil {
			t.Fatal(err)
		}
		r := z.Answer(q)
		// The spelling of names in the data follows the question's; case.txtar has it.
		if got := inRow(r); !strings.EqualFold(got, want) {
			t.Errorf("%s: %s %s\n got %s\nwant %s", path, name, typ, got, want)
		}
		if denial := len(r.Authority) > 0; denial && (len(r.Authority) != 1 || r.Authority[0].Type != dns.TypeSOA) {
			t.Errorf("%s: %s %s: authority %v", path, name, typ, r.Authority)
		}
		if (r.Rcode == dns.NXDomain || len(r.Answer) == 0) && !r.NotOurs && len(r.Authority) != 1 {
			t.Errorf("%s: %s %s: a denial without SOA", path, name, typ)
		}
	}
	return len(asked)
}

func inRow(r dns.Reply) string {
	if len(r.Answer) == 0 || r.Rcode != dns.NoError {
		return status(r)
	}
	s := rowRecords(r.Answer)
	switch {
	case r.Chase != "":
		s += " then " + r.Chase
	case len(r.Authority) > 0:
		s += " NODATA"
	case len(r.Additional) > 0:
		s += " + " + rowRecords(r.Additional)
	}
	return s
}

func rowRecords(list []dns.Record) string {
	var out []string
	for _, r := range list {
		out = append(out, r.Type.String()+" "+r.Data())
	}
	return strings.Join(out, "; ")
}

// TestLongChain: ten CNAMEs are followed, the eleventh is not.
func TestLongChain(t *testing.T) {
	o := cluster(1, 1)
	for i := range 12 {
		next := "svc-00000.bench.svc.cluster.local"
		if i < 11 {
			next = fmt.Sprintf("link-%d.bench.svc.cluster.local", i+1)
		}
		o.Services = append(o.Services, &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: "bench", Name: fmt.Sprintf("link-%d", i)},
			Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: next},
		})
	}
	snap, _ := model.Build(nil, o)
	z, _ := dns.Build(nil, snap, dns.DefaultConfig())
	for first, want := range map[string]int{"link-0": 10, "link-2": 10, "link-3": 10, "link-11": 2} {
		r := z.Answer(dns.Question{Name: first + ".bench.svc.cluster.local.", Type: dns.TypeA})
		if len(r.Answer) != want {
			t.Errorf("%s: %d records, want %d", first, len(r.Answer), want)
		}
	}
	// Three links from the end the address is reached: nine CNAMEs and an A.
	r := z.Answer(dns.Question{Name: "link-3.bench.svc.cluster.local.", Type: dns.TypeA})
	if last := r.Answer[len(r.Answer)-1]; last.Type != dns.TypeA {
		t.Errorf("ends in %v", last)
	}
}
