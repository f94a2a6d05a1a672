package cri

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const testCIDRs = "10.244.1.0/24,fd00:244:1::/64"

func TestContainerLife(t *testing.T) {
	p := startNode(t, testCIDRs).pod("web")
	b := p.container(shell("echo hello; echo bad >&2; printf tail; exit 7"))
	st := b.ended()
	if st.ExitCode != 7 || st.Reason != "Error" || st.FinishedAt < st.StartedAt || st.StartedAt < st.CreatedAt {
		t.Errorf("status: %v", st)
	}
	out := b.output()
	for _, want := range []string{"stdout F hello", "stderr F bad", "stdout P tail"} {
		if !strings.Contains(out, want) {
			t.Errorf("log lacks %q:\n%s", want, out)
		}
	}
	if st := p.container(shell("exit 0")).ended(); st.ExitCode != 0 || st.Reason != "Completed" {
		t.Errorf("status: %v", st)
	}
	if st := p.container(shell("kill -9 $$; sleep 60 & wait; kill -11 $!")); st != nil {
		// The first process of a process namespace is safe from signals of its own namespace.
		if _, err := p.run.StopContainer(p.ctx(), &runtimeapi.StopContainerRequest{ContainerId: st.id}); err != nil {
			t.Fatal(err)
		}
		if got := st.ended().ExitCode; got != 137 {
			t.Errorf("exit code after SIGKILL: %d", got)
		}
	}
}

func TestStopAsksFirst(t *testing.T) {
	p := startNode(t, testCIDRs).pod("web")
	b := p.container(shell("trap 'echo bye; exit 3' TERM; echo up; while :; do sleep 0.05; done"))
	for !strings.Contains(b.output(), "up") {
		time.Sleep(10 * time.Millisecond)
	}
	if _, err := p.run.StopContainer(p.ctx(), &runtimeapi.StopContainerRequest{ContainerId: b.id, Timeout: 10}); err != nil {
		t.Fatal(err)
	}
	if st := b.ended(); st.ExitCode != 3 || !strings.Contains(b.output(), "stdout F bye") {
		t.Errorf("status %v, log:\n%s", st, b.output())
	}
}

func TestStartErrors(t *testing.T) {
	p := startNode(t, testCIDRs).pod("web")
	config := shell("")
	config.Command = []string{"no-such-program"}
	b, err := p.tryContainer(config)
	if err == nil || !strings.Contains(err.Error(), `"no-such-program": executable file not found in $PATH`) {
		t.Errorf("start: %v", err)
	}
	if st := b.status(); st.State != runtimeapi.ContainerState_CONTAINER_EXITED || st.ExitCode != 128 || st.Reason != "StartError" {
		t.Errorf("status: %v", st)
	}
	config.Image.Image = "registry.example/strange:1"
	if _, err := p.tryContainer(config); status.Code(err) != codes.NotFound || !strings.Contains(err.Error(), "images.yaml") {
		t.Errorf("create with an unknown image: %v", err)
	}
	_, err = p.images.PullImage(p.ctx(), &runtimeapi.PullImageRequest{Image: config.Image})
	if status.Code(err) != codes.NotFound || !strings.Contains(err.Error(), `match: ["registry.example/strange:1"]`) {
		t.Errorf("pull: %v", err)
	}
}

func TestExecSync(t *testing.T) {
	p := startNode(t, testCIDRs).pod("web")
	b := p.container(shell(idle))
	resp, err := p.run.ExecSync(p.ctx(), &runtimeapi.ExecSyncRequest{
		ContainerId: b.id, Cmd: []string{"sh", "-c", "echo out; echo err >&2; exit 5"},
	})
	if err != nil || resp.ExitCode != 5 || string(resp.Stdout) != "out\n" || string(resp.Stderr) != "err\n" {
		t.Errorf("%v, %v", resp, err)
	}
	start := time.Now()
	_, err = p.run.ExecSync(p.ctx(), &runtimeapi.ExecSyncRequest{
		ContainerId: b.id, Cmd: []string{"sh", "-c", "sleep 60 & sleep 60"}, Timeout: 1,
	})
	if status.Code(err) != codes.DeadlineExceeded || time.Since(start) > 5*time.Second {
		t.Errorf("timeout: %v after %v", err, time.Since(start))
	}
	if got := b.sh("ps ax | grep -c '[s]leep 60' || true"); got != "0" {
		t.Errorf("%s processes left after the timeout", got)
	}
	if _, err := p.run.ExecSync(p.ctx(), &runtimeapi.ExecSyncRequest{ContainerId: b.id, Cmd: []string{"absent"}}); err == nil {
		t.Error("exec of an absent program: no error")
	}
}
