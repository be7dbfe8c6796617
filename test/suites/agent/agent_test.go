package agent

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"machine-pivot/internal/cluster/api"
	"machine-pivot/test/tools/metrics"
	"machine-pivot/test/worlds/hostsystemd"
)

// TestAgent is the life of an agent. It joins, carries out a change, is killed in the middle of another one, is
// followed by a second agent, which finds the run again, and is stopped. Then the node is handed back.
func TestAgent(t *testing.T) {
	if testing.Short() {
		t.Skip("starts systemd and a control plane")
	}
	if !hostsystemd.Inside(t) {
		return
	}
	w := newWorld(t)
	first := w.start()
	w.done("a")
	w.eventually("its state is published", func() bool { return strings.Contains(w.system(), `"ok":true`) })
	if calls := w.calls(); strings.Contains(calls, "apply") {
		t.Errorf("a node that has its MachineConfig is changed:\n%s", calls)
	}

	w.want("b")
	w.done("b")
	for _, reason := range []string{api.EventDownloaded, api.EventSkipReboot, api.EventDone} {
		w.event(reason)
	}
	w.eventually("the metrics say so", func() bool { return strings.Contains(w.page("/metrics"), `pivot_agent_node_state{state="Done"} 1`) })
	metrics.Check(t, "../../../docs/cluster-view.md", "agent", w.page("/metrics"))
	w.page("/healthz")
	w.page("/readyz")

	for _, flags := range [][]string{{"--listen", "127.0.0.1:0"}, {"--hand-back"}} {
		second := w.start(flags...)
		if err := second.Wait(); err == nil || !strings.Contains(second.log.String(), "another agent is at work") {
			t.Errorf("a second agent beside the first, %q: %v\n%s", flags, err, second.log)
		}
	}

	hold := filepath.Join(w.dir, "hold")
	for _, name := range []string{"hold", "applying"} {
		_ = os.Remove(filepath.Join(w.dir, name))
		if name == "hold" {
			if err := os.WriteFile(hold, nil, 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	w.want("c")
	w.eventually("pivot applies c", func() bool { return w.has("applying") })
	first.stop(syscall.SIGKILL)
	applied := strings.Count(w.calls(), "apply --window")
	third := w.start()
	w.eventually("the third agent works", func() bool { return strings.Contains(w.system(), `"step":"wait"`) })
	if err := os.Remove(hold); err != nil {
		t.Fatal(err)
	}
	w.done("c")
	if again := strings.Count(w.calls(), "apply --window"); again != applied {
		t.Errorf("c was applied %d times", again-applied+1)
	}
	if status := third.stop(syscall.SIGTERM); status != 0 {
		t.Errorf("stopped by SIGTERM, it ends with %d", status)
	}

	fourth := w.start()
	w.eventually("the fourth agent answers", func() bool { return w.answers("/readyz") })
	config := filepath.Join(w.dir, "config")
	w.write(config, w.read(config)+"# the node has joined again\n")
	if err := fourth.Wait(); err == nil || fourth.ProcessState.ExitCode() != 69 || !strings.Contains(fourth.log.String(), "start the agent again") {
		t.Errorf("with other credentials: %v\n%s", err, fourth.log)
	}

	for _, said := range []string{"the node has c, and is Done\n", "nothing to do: the node is the machine-config-daemon's, and has c\n"} {
		last := w.start("--hand-back")
		if err := last.Wait(); err != nil || !strings.HasSuffix(last.log.String(), said) {
			t.Errorf("handing back: %v\n%s", err, last.log)
		}
	}
	w.event(api.EventHandedBack)
}
