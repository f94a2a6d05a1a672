package cri

import (
	"os"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
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
	// The first process of a process namespace is safe from signals of its own namespace, and from SIGTERM unless it
	// handles it: after the grace comes SIGKILL.
	b = p.container(shell("kill -9 $$; echo alive; exec sleep 60"))
	b.waitOutput("stdout F alive")
	start := time.Now()
	if _, err := p.run.StopContainer(p.ctx(), &runtimeapi.StopContainerRequest{ContainerId: b.id, Timeout: 1}); err != nil {
		t.Fatal(err)
	}
	if got := b.ended().ExitCode; got != 137 || time.Since(start) < time.Second {
		t.Errorf("exit code %d after %v", got, time.Since(start))
	}
}

func TestStopAsksFirst(t *testing.T) {
	p := startNode(t, testCIDRs).pod("web")
	b := p.container(shell("trap 'echo bye; exit 3' TERM; echo up; while :; do sleep 0.05; done"))
	b.waitOutput("stdout F up")
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

// twoPods are web, which runs container a, and db, which has stopped and whose container b has ended.
func twoPods(t *testing.T) (n *node, db *pod, a, b *box) {
	t.Helper()
	n = startNode(t, testCIDRs)
	web := n.pod("web")
	db = n.pod("db")
	a = web.container(shell("while :; do echo tick; sleep 0.02; done"))
	config := shell("exit 0")
	config.Labels = map[string]string{"role": "job", "tier": "x"}
	b = db.container(config)
	b.ended()
	if _, err := n.run.StopPodSandbox(n.ctx(), &runtimeapi.StopPodSandboxRequest{PodSandboxId: db.id}); err != nil {
		t.Fatal(err)
	}
	return n, db, a, b
}

func TestListPods(t *testing.T) {
	n, _, _, _ := twoPods(t)
	ready := &runtimeapi.PodSandboxStateValue{State: runtimeapi.PodSandboxState_SANDBOX_READY}
	for want, filter := range map[string]*runtimeapi.PodSandboxFilter{
		"db web": nil, "web": {State: ready}, "db": {LabelSelector: map[string]string{"app": "db"}}, "": {Id: "none"},
	} {
		resp, err := n.run.ListPodSandbox(n.ctx(), &runtimeapi.ListPodSandboxRequest{Filter: filter})
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, p := range resp.Items {
			names = append(names, p.Metadata.Name)
		}
		if got := strings.Join(names, " "); got != want {
			t.Errorf("sandboxes %v: %q, want %q", filter, got, want)
		}
	}
}

func TestListContainers(t *testing.T) {
	n, db, a, b := twoPods(t)
	running := &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_RUNNING}
	for _, c := range []struct {
		want   string
		filter *runtimeapi.ContainerFilter
	}{
		{b.id + a.id, nil},
		{a.id, &runtimeapi.ContainerFilter{State: running}},
		{b.id, &runtimeapi.ContainerFilter{PodSandboxId: db.id}},
		{b.id, &runtimeapi.ContainerFilter{LabelSelector: map[string]string{"role": "job"}}},
		{"", &runtimeapi.ContainerFilter{LabelSelector: map[string]string{"role": "job", "tier": "y"}}},
	} {
		resp, err := n.run.ListContainers(n.ctx(), &runtimeapi.ListContainersRequest{Filter: c.filter})
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, item := range resp.Containers {
			got += item.Id
		}
		if got != c.want {
			t.Errorf("containers %v: %q, want %q", c.filter, got, c.want)
		}
	}
}

func TestStatsAndLogs(t *testing.T) {
	n, _, a, _ := twoPods(t)
	stats, err := n.run.ListContainerStats(n.ctx(), &runtimeapi.ListContainerStatsRequest{})
	if err != nil || len(stats.Stats) != 1 || stats.Stats[0].Memory.GetRssBytes().GetValue() == 0 {
		t.Errorf("stats: %v, %v", stats, err)
	}
	path := a.status().LogPath
	if err := os.Rename(path, path+".old"); err != nil {
		t.Fatal(err)
	}
	if _, err := n.run.ReopenContainerLog(n.ctx(), &runtimeapi.ReopenContainerLogRequest{ContainerId: a.id}); err != nil {
		t.Fatal(err)
	}
	a.waitOutput("stdout F tick")
}

func TestImages(t *testing.T) {
	n := startNode(t, "")
	image := &runtimeapi.ImageSpec{Image: "busybox:1.36"}
	present := func() bool {
		resp, err := n.images.ImageStatus(n.ctx(), &runtimeapi.ImageStatusRequest{Image: image}, grpc.WaitForReady(true))
		if err != nil {
			t.Fatal(err)
		}
		return resp.Image != nil
	}
	if present() {
		t.Error("there before the pull")
	}
	if _, err := n.images.PullImage(n.ctx(), &runtimeapi.PullImageRequest{Image: image}); err != nil || !present() {
		t.Errorf("pull: %v", err)
	}
	list, err := n.images.ListImages(n.ctx(), &runtimeapi.ListImagesRequest{})
	if err != nil || len(list.Images) != 1 || list.Images[0].Id != image.Image {
		t.Errorf("list: %v, %v", list, err)
	}
	if _, err := n.images.RemoveImage(n.ctx(), &runtimeapi.RemoveImageRequest{Image: image}); err != nil || present() {
		t.Errorf("remove: %v", err)
	}
	if _, err := n.images.ImageFsInfo(n.ctx(), &runtimeapi.ImageFsInfoRequest{}); err != nil {
		t.Error(err)
	}
}

// BenchmarkPod is one Pod with one container from nothing to nothing; BenchmarkExec is one exec probe.
func BenchmarkPod(b *testing.B) {
	n := startNode(b, testCIDRs)
	for b.Loop() {
		p := n.pod("web")
		p.container(shell("exec sleep 600"))
		p.remove()
	}
}

func BenchmarkExec(b *testing.B) {
	box := startNode(b, testCIDRs).pod("web").container(shell(idle))
	for b.Loop() {
		box.sh("true")
	}
}
