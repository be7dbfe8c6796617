package hostpivot_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"machine-pivot/internal/cluster/hostpivot"
	"machine-pivot/test/worlds/hostsystemd"
)

// inPod is set in the environment of a test that runs as in a pod, to the directory of the stand-in for
// pivot.
const inPod = "PIVOT_TEST_IN_POD"

// TestFromAPod: a process of root in a PID namespace of its own, without any capability, which finds the
// host's /run below another directory, runs pivot on the host. It is what deploy/pod grants.
func TestFromAPod(t *testing.T) {
	if dir := os.Getenv(inPod); dir != "" {
		h := host{t, nil, dir}
		h.Systemd = h.another(filepath.Join(dir, "host"))
		asPod(h)
		return
	}
	if testing.Short() {
		t.Skip("starts systemd")
	}
	if !hostsystemd.Inside(t) {
		return
	}
	h := newHost(t)
	if err := os.MkdirAll(filepath.Join(h.dir, "host/run"), 0o755); err != nil {
		t.Fatal(err)
	}
	const script = `mount --rbind /run "$1/host/run" && shift && exec setpriv --inh-caps=-all --bounding-set=-all --no-new-privs "$@"`
	pod := exec.CommandContext(t.Context(), "unshare", "-m", "-p", "-f", "--mount-proc", "-i", "-u", "sh", "-c", script, "sh", h.dir, os.Args[0], "-test.run", "^"+t.Name()+"$", "-test.v")
	pod.Env = append(os.Environ(), inPod+"="+h.dir)
	out, err := pod.CombinedOutput()
	if t.Logf("in the pod:\n%s", out); err != nil || !bytes.Contains(out, []byte("--- PASS: "+t.Name()+" ")) {
		t.Errorf("the test fails in the pod: %v", err)
	}
}

func asPod(h host) {
	h.Helper()
	if os.Getpid() > 10 {
		h.Fatalf("this process is %d, which is not of a namespace of its own", os.Getpid())
	}
	status, err := os.ReadFile("/proc/self/status")
	if err != nil || !bytes.Contains(status, []byte("CapEff:\t0000000000000000\n")) {
		h.Fatalf("it has capabilities: %v\n%s", err, status)
	}
	if err := h.Lock(); err != nil {
		h.Fatal(err)
	}
	if seen := h.look(); seen.Version != "1.2.3" || seen.Status.Current() != "a" {
		h.Errorf("it sees %+v", seen)
	}
	h.start(hostpivot.Request{Verb: hostpivot.Apply, Config: "b", Data: []byte("{}")})
	h.running()
	h.write("end", `doc Result '"outcome":"committed"'; exit 0`)
	if run := h.ended(); run.State != hostpivot.RunEnded || run.Failure != nil || run.Result == nil || run.Result.Outcome != "committed" {
		h.Errorf("the run has ended as %+v", run)
	}
	if _, err := h.Verify(h.Context()); err != nil {
		h.Error(err)
	}
}
