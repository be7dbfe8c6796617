package agent

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"machine-pivot/internal/cluster/api"
	"machine-pivot/test/worlds/hostdir"
	"machine-pivot/test/worlds/hostsystemd"
)

// TestDrift: a change by hand on a machine that the real pivot watches is a condition, a metric and an event within
// seconds. So is its end, also for an agent that came later.
func TestDrift(t *testing.T) {
	if testing.Short() {
		t.Skip("starts systemd and a control plane")
	}
	if !hostsystemd.Inside(t) {
		return
	}
	w := newWorld(t)
	compared := hostdir.New(t)
	w.build("pivot", filepath.Join(w.dir, "real-pivot"))
	compared.Write("/var/lib/pivot/journal.json", []byte(`{"format": 4, "phase": "done", "attempt": 1, "target": {"kargs": {}, "files": [
		{"path": "/etc/ours", "mode": 420, "uid": 0, "gid": 0, "digest": "sha256:5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03"}]}}`))
	compared.Write("/etc/ours", []byte("hello\n"))
	if err := os.WriteFile(filepath.Join(w.dir, "compared"), []byte("--root "+compared.Root), 0o644); err != nil {
		t.Fatal(err)
	}
	agent := w.start()
	w.done("a")
	w.eventually("the machine is watched", func() bool { _, err := os.Stat("/run/pivot/agent/watch.json"); return err == nil })

	var watch int
	if out, err := exec.CommandContext(t.Context(), "systemctl", "show", "--property=MainPID", "--value", "pivot-agent-watch.service").Output(); err != nil {
		t.Fatal(err)
	} else if _, err := fmt.Sscan(string(out), &watch); err != nil {
		t.Fatal(err)
	}

	told := func(content, state, drift, degraded string, requests int) {
		t.Helper()
		before := w.requests()
		compared.Write("/etc/ours", []byte(content))
		began := time.Now()
		w.eventually("the node is "+state, func() bool { return w.annotation(api.StateOfNode) == state })
		t.Logf("%s after %.2f s", state, time.Since(began).Seconds())
		w.eventually("the metric is "+drift, func() bool { return strings.Contains(w.page("/metrics"), "\npivot_agent_config_drift "+drift+"\n") })
		w.eventually("NodeDegraded is "+degraded, func() bool { return w.condition("NodeDegraded") == degraded })
		if n := w.requests() - before; n > requests {
			t.Errorf("%d requests, want at most %d", n, requests)
		}
	}
	told("other\n", api.StateDegraded, "1", "True", 10)
	w.event(api.EventDrift)
	if reason := w.annotation(api.Reason); !strings.Contains(reason, "/etc/ours") {
		t.Error(reason)
	}
	told("hello\n", api.StateDone, "0", "False", 10)

	told("other\n", api.StateDegraded, "1", "True", 10)
	agent.stop(syscall.SIGKILL)
	agent = w.start()
	w.eventually("the second agent answers", func() bool {
		r, err := http.Get("http://" + w.listen + "/healthz")
		return err == nil && r.Body.Close() == nil
	})
	w.eventually("it knows", func() bool { return strings.Contains(w.page("/metrics"), "\npivot_agent_config_drift 1\n") })
	told("hello\n", api.StateDone, "0", "False", 20) // with those with which the second agent starts
	t.Logf("peak memory of the watch: %.1f MB", float64(w.peak(watch))/1e6)
	if n := strings.Count(w.calls(), "--watch"); n != 1 {
		t.Errorf("pivot watches %d times", n)
	}
	if status := agent.stop(syscall.SIGTERM); status != 0 {
		t.Errorf("stopped by SIGTERM, it ends with %d", status)
	}
}
