package report

import (
	"encoding/xml"
	"errors"
	"io"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

func sample() Rows {
	row := func(program, mode string, n int, measure string, values ...float64) Rows {
		var out Rows
		for i, v := range values {
			out = append(out, Row{program, mode, n, 10, measure, i, v})
		}
		return out
	}
	var rows Rows
	for _, r := range []Rows{
		row(Fairway, "nftables", 1000, Cold, 0.5), row(KubeProxy, "nftables", 1000, Cold, 4.9),
		row(Fairway, "nftables", 1000, EndpointCPU, 0.004, 0.009, 0.003), row(KubeProxy, "nftables", 1000, EndpointCPU, 0.1),
		row(Fairway, "nftables", 1000, Resident, 60<<20), row(KubeProxy, "nftables", 1000, Resident, 100<<20),
		row(KubeProxy, "nftables", 2000, Stopped, 60),
		row(Fairway, "nftables", 10000, Cold, 1.9), row(Fairway, "nftables", 10000, Endpoint, 0.06),
		row(Fairway, "nftables", 30000, Connect, 12, 30, 12), row(Fairway, "nftables", 30000, Direct, 10, 10, 10), row(Fairway, "nftables", 30000, One, 12, 29, 12),
		row(Fairway, "ebpf", 1000, Unavailable, 1),
	} {
		rows = append(rows, r...)
	}
	return rows
}

func TestCSV(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rows.csv")
	want := sample()
	for _, part := range []Rows{want[:3], want[3:]} { // a run that was taken up again
		if err := Write(path, part); err != nil {
			t.Fatal(err)
		}
	}
	got, err := Read(path)
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("read %v, %v, want %v", got, err, want)
	}
	if err := Drop(path, KubeProxy, "nftables", 1000); err != nil {
		t.Fatal(err)
	}
	if got, _ := Read(path); len(got) != len(want)-3 || len(got.Values(KubeProxy, "nftables", 1000, Cold)) != 0 {
		t.Errorf("after dropping three of %d rows there are %d", len(want), len(got))
	}
}

func TestBars(t *testing.T) {
	got := Bars(sample())
	for _, want := range []string{
		"MISSED        cold sync, nftables: at most 1/10 of kube-proxy's at the largest size both finish: 500 ms against 4.9 s at 1000 Services",
		"met           cold sync, nftables, at 10000 Services: at most 2.0 s: 1.9 s",
		"not measured  cold sync, nftables, at 30000 Services",
		"MISSED        +1 endpoint, nftables, at 10000 Services: at most 50 ms: 60 ms",
		"met           +1 endpoint, processor, nftables: at most 1/10 of kube-proxy's at the largest size both finish: 4.0 ms against 100 ms",
		"MISSED        memory at rest, nftables: at most 1/2 of kube-proxy's at the largest size both finish: 60 MB against 100 MB",
		"met           connect p50, nftables, 30000 Services: at most 1.25 of direct: 1.200",
		"met           connect p50, nftables, 30000 Services: at most 1.05 of the same mode with 1 Service: 1.000",
		"not measured  connect p50, ebpf",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
}

func TestTable(t *testing.T) {
	got := Table(sample())
	for _, want := range []string{"over 60 s: stopped", "not available", "fairway nftables", "4.9 s"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
}

// The chart is well-formed, names every mode that has a figure, and no others.
func TestChart(t *testing.T) {
	got := Chart(sample())
	d := xml.NewDecoder(strings.NewReader(got))
	for {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []string{">fairway nftables<", ">kube-proxy nftables (stopped)<"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %s in the chart", want)
		}
	}
	if strings.Contains(got, "ebpf") {
		t.Error("a mode without figures is in the chart")
	}
}
