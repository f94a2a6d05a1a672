// Package report turns a benchmark's raw rows into what people read: rows come in as
// they were measured and are kept as CSV, a table, a verdict on each bar and a chart go
// out. It measures nothing and leaves no row out.
package report

import (
	"encoding/csv"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
)

// The programs compared.
const (
	Fairway   = "fairway"
	KubeProxy = "kube-proxy"
)

// What is measured. Times are in seconds, memory in bytes, connects in microseconds.
const (
	Cold        = "cold sync"                      // start of the process to the last rule in force
	ColdCPU     = "cold sync, processor"           // until it is at rest again
	Stopped     = "cold sync, stopped after"       // it was not done by then
	Unavailable = "not available"                  // the mode does not run here; the value is 1
	Broken      = "Services not answering"         // of all, once the process was at rest
	Peak        = "memory, peak"                   // of the proxy and its helpers
	Resident    = "memory, resident"               // at rest, after the small steps
	Endpoint    = "+1 endpoint"                    // object to kernel
	EndpointCPU = "+1 endpoint, processor"         //
	Add         = "+1 Service"                     //
	AddCPU      = "+1 Service, processor"          //
	Remove      = "-1 Service"                     //
	RemoveCPU   = "-1 Service, processor"          //
	Restart     = "restart"                        // start of the process to a Service new since then
	Halted      = "restart, stopped after"         // it had not caught up by then
	RestartCPU  = "restart, processor"             //
	Dials       = "dials during a full resync"     // made
	Failed      = "dials failed in a full resync"  // of those
	Connect     = "connect"                        // p50 of a round
	Direct      = "connect, direct"                // the same round and endpoints, no proxy and no netfilter
	DirectOne   = "connect, direct, 1 Service"     // the same, to the endpoints of one Service
	Floor       = "connect, translation alone"     // the same endpoints, one rule of the kernel and no proxy
	FloorCPU    = "10,000 dials, processor alone"  //
	One         = "connect, 1 Service"             // the same round, the same mode with 1 Service
	Lost        = "connects failed"                // of a round, in any number of Services
	ConnectCPU  = "10,000 dials, processor"        // client, kernel on the way, proxy
	DirectCPU   = "10,000 dials, processor direct" //
	Complete    = "complete"                       // everything asked for was measured; the value is 1
)

// Row is one thing measured once.
type Row struct {
	Program, Mode       string
	Services, Endpoints int
	Measure             string
	Round               int
	Value               float64
}

func header() []string {
	return []string{"program", "mode", "services", "endpoints", "measure", "round", "value"}
}

// Rows is a run, in the order measured.
type Rows []Row

// Write appends rows to a CSV file, which is begun when it is not there.
func Write(path string, rows Rows) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer f.Close()
	w := csv.NewWriter(f)
	if st, err := f.Stat(); err == nil && st.Size() == 0 {
		_ = w.Write(header())
	}
	for _, r := range rows {
		_ = w.Write([]string{r.Program, r.Mode, strconv.Itoa(r.Services), strconv.Itoa(r.Endpoints), r.Measure, strconv.Itoa(r.Round),
			strconv.FormatFloat(r.Value, 'g', 10, 64)})
	}
	w.Flush()
	if err := w.Error(); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return f.Close()
}

// Drop takes a half-measured contestant's rows of one size out of the file.
func Drop(path, program, mode string, services int) error {
	rows, err := Read(path)
	if err != nil {
		return err
	}
	kept := slices.DeleteFunc(slices.Clone(rows), func(r Row) bool { return r.Program == program && r.Mode == mode && r.Services == services })
	if len(kept) == len(rows) {
		return nil
	}
	if err := os.Remove(path + ".new"); err != nil && !os.IsNotExist(err) {
		return err
	}
	if err := Write(path+".new", kept); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// Read reads what Write has written; a file that is not there has no rows.
func Read(path string) (Rows, error) {
	f, err := os.Open(path)
	if os.IsNotExist(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	r := csv.NewReader(f)
	var out Rows
	for line := 1; ; line++ {
		rec, err := r.Read()
		if err == io.EOF {
			return out, nil
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		if line == 1 && slices.Equal(rec, header()) {
			continue
		}
		row, err := parse(rec)
		if err != nil {
			return nil, fmt.Errorf("%s line %d: %w", path, line, err)
		}
		out = append(out, row)
	}
}

func parse(rec []string) (Row, error) {
	if len(rec) != len(header()) {
		return Row{}, fmt.Errorf("%d fields, want %d", len(rec), len(header()))
	}
	r := Row{Program: rec[0], Mode: rec[1], Measure: rec[4]}
	var err error
	for i, to := range map[int]*int{2: &r.Services, 3: &r.Endpoints, 5: &r.Round} {
		if *to, err = strconv.Atoi(rec[i]); err != nil {
			return r, err
		}
	}
	r.Value, err = strconv.ParseFloat(rec[6], 64)
	return r, err
}

// Values are all rounds of one measure.
func (rows Rows) Values(program, mode string, services int, measure string) []float64 {
	var out []float64
	for _, r := range rows {
		if r.Program == program && r.Mode == mode && r.Services == services && r.Measure == measure {
			out = append(out, r.Value)
		}
	}
	return out
}

// Median is the middle of all rounds, and whether there is any.
func (rows Rows) Median(program, mode string, services int, measure string) (float64, bool) {
	return median(rows.Values(program, mode, services, measure))
}

func median(v []float64) (float64, bool) {
	if len(v) == 0 {
		return 0, false
	}
	v = slices.Sorted(slices.Values(v))
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2, true
}

// Ratio is the median over rounds of one measure divided by another of the same round.
func (rows Rows) Ratio(program, mode string, services int, measure, by string) (float64, bool) {
	a, b := rows.Values(program, mode, services, measure), rows.Values(program, mode, services, by)
	var out []float64
	for i := range min(len(a), len(b)) {
		if b[i] > 0 {
			out = append(out, a[i]/b[i])
		}
	}
	return median(out)
}

// Sizes are the numbers of Services a mode was tried with, ascending.
func (rows Rows) Sizes(program, mode string) []int {
	var out []int
	for _, r := range rows {
		if r.Program == program && r.Mode == mode && !slices.Contains(out, r.Services) {
			out = append(out, r.Services)
		}
	}
	slices.Sort(out)
	return out
}
