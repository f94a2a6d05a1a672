package cri

import (
	"errors"
	"io"
	"os"
	"sync"
	"time"

	"fairway/lab/cri/logfile"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// pipes are a container's standard files before it has started: our ends and the container's. With a terminal all are
// nil.
type pipes struct {
	childIn, childOut, childErr *os.File
	in, out, err                *os.File
}

func openPipes(config *runtimeapi.ContainerConfig) (*pipes, error) {
	p := &pipes{}
	if config.GetTty() {
		return p, nil
	}
	var errs [3]error
	if config.GetStdin() {
		p.childIn, p.in, errs[0] = os.Pipe()
	}
	p.out, p.childOut, errs[1] = os.Pipe()
	p.err, p.childErr, errs[2] = os.Pipe()
	if err := errors.Join(errs[:]...); err != nil {
		p.closeAll()
		return nil, err
	}
	return p, nil
}

func (p *pipes) closeChild() { closeFiles(p.childIn, p.childOut, p.childErr) }
func (p *pipes) closeAll()   { closeFiles(p.childIn, p.childOut, p.childErr, p.in, p.out, p.err) }

// closeFiles passes over nil, and over files closed before.
func closeFiles(files ...*os.File) {
	for _, f := range files {
		if f != nil {
			f.Close()
		}
	}
}

// plumbing carries a container's output to its log and to everyone attached, and attached input to the container.
type plumbing struct {
	in      *os.File // the container's standard input or terminal; nil without one
	tty     bool
	sources []*os.File
	names   []string
	log     *logfile.Log
	drained sync.WaitGroup

	mu      sync.Mutex
	viewers map[*viewer]bool
}

// viewer is one attached client.
type viewer struct {
	out, err io.Writer
}

func newPlumbing(p *pipes, master *os.File, log *logfile.Log) *plumbing {
	f := &plumbing{log: log, viewers: map[*viewer]bool{}}
	if master != nil {
		f.tty, f.in = true, master
		f.sources, f.names = []*os.File{master}, []string{"stdout"}
		return f
	}
	f.in = p.in
	f.sources, f.names = []*os.File{p.out, p.err}, []string{"stdout", "stderr"}
	return f
}

func (f *plumbing) run() {
	for i, source := range f.sources {
		f.drained.Add(1)
		go f.pump(source, f.names[i])
	}
}

func (f *plumbing) pump(source *os.File, name string) {
	defer f.drained.Done()
	stream := f.log.Stream(name)
	buf := make([]byte, 32*1024)
	for {
		n, err := source.Read(buf)
		if n > 0 {
			// A full disk or a viewer that left must not stop the container.
			_, _ = stream.Write(buf[:n])
			f.show(name, buf[:n])
		}
		if err != nil {
			break // closed, or EIO from a terminal without a process
		}
	}
	_ = stream.Close()
}

func (f *plumbing) show(name string, p []byte) {
	f.mu.Lock()
	var targets []io.Writer
	for v := range f.viewers {
		w := v.out
		if name == "stderr" {
			w = v.err
		}
		if w != nil {
			targets = append(targets, w)
		}
	}
	f.mu.Unlock()
	for _, w := range targets {
		_, _ = w.Write(p)
	}
}

// finish waits for the last output, but no longer than patience: with a shared process namespace, a child that outlives
// the container may hold its output open.
func (f *plumbing) finish(patience time.Duration) {
	drained := make(chan struct{})
	go func() {
		f.drained.Wait()
		close(drained)
	}()
	select {
	case <-drained:
	case <-time.After(patience):
	}
	closeFiles(f.sources...)
	closeFiles(f.in)
	<-drained
}

func (f *plumbing) attach(v *viewer) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.viewers[v] = true
}

func (f *plumbing) detach(v *viewer) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.viewers, v)
}

// closeInput ends the container's standard input; a terminal has no end.
func (f *plumbing) closeInput() {
	if !f.tty {
		closeFiles(f.in)
	}
}
