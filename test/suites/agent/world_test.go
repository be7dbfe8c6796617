// Package agent tests the program pivot-agent as it runs on a machine without a reboot: with the real API server, the
// credentials of a node, and a real systemd. A script stands in for pivot, because the machine of the tests is no
// ostree host; test/suites/e2e has the whole machine.
package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"machine-pivot/internal/cluster/api"
	"machine-pivot/test/tools/script"
	"machine-pivot/test/worlds/controlplane"
)

// pivot stands in for pivot, but for comparisons if there is a file with the options of the real one. It has the
// MachineConfig in the file current, and downloads one in the file downloaded. The file hold makes an apply wait, the
// file reboots makes it need a reboot, and the file workloads has its workload types.
const pivot = `#!/bin/sh
dir=$(dirname "$0")
last() { for arg; do :; done; echo "$arg"; }
name() { sed 's/.*"metadata":{"name":"\([^"]*\)".*/\1/' "$1"; }
doc() { echo '{"apiVersion":"pivot/v1","kind":"'"$1"'",'"$2"'}'; }
echo "$@" >> "$dir/calls"
echo "$(date +%s.%N) $*" >> "$dir/times"
case "$*" in
verify*) [ ! -e "$dir/compared" ] || exec "$dir/real-pivot" "$@" $(cat "$dir/compared") ;;
esac
case "$*" in
"verify --watch "*) doc Verify '"ok":true,"differences":[]' > "$4"; exec sleep infinity ;;
esac
current=$(cat "$dir/current")
case "$*" in
version*) doc Version '"version":"0.0.0"' ;;
status*) doc Status '"phase":"done","booted":{"commit":"c0"},"machineConfig":{"recordedBy":"'"$(cat "$dir/by")"'","current":{"name":"'"$current"'"},"desired":{"name":"'"$current"'"}},"downloaded":{"machineConfig":"sha256:'"$(cat "$dir/downloaded")"'","at":"2026-01-01T00:00:00Z"},"partitioning":{"workloads":['"$(cat "$dir/workloads" 2>/dev/null)"']}' ;;
verify*) doc Verify '"ok":true,"differences":[]' ;;
hand-back*) echo machine-config-daemon > "$dir/by"; doc Result '"outcome":"handed-back"' ;;
*--dry-run*)
	if [ -e "$dir/reboots" ]; then
		doc Plan '"changed":true,"reboots":1,"drain":{"wanted":true,"because":["image"]}'
	else
		doc Plan '"changed":true,"reboots":0,"drain":{"wanted":false,"because":[]}'
	fi
	;;
*--download-only*) sha256sum "$(last "$@")" | cut -d' ' -f1 > "$dir/downloaded"; doc Result '"outcome":"downloaded"' ;;
apply*)
	: > "$dir/applying"
	while [ -e "$dir/hold" ]; do sleep 0.05; done
	if [ -e "$dir/reboots" ]; then name "$(last "$@")" > "$dir/next"; doc Result '"outcome":"rebooting"'; exit 0; fi
	name "$(last "$@")" > "$dir/current"; doc Result '"outcome":"applied"'
	;;
esac
`

// world is a node of a cluster, with its machine.
type world struct {
	testing.TB
	plane  *controlplane.ControlPlane
	client kubernetes.Interface
	dir    string // of the stand-in
	agent  string // path of the program
	listen string
}

const node = "n1"

func newWorld(t testing.TB) *world {
	t.Helper()
	w := &world{TB: t, plane: controlplane.Start(t), dir: t.TempDir()}
	w.client = w.plane.Client(w.plane.Admin())
	w.plane.Deploy("../../../deploy/host")
	w.plane.Deploy("../../../deploy/by-name")
	for _, name := range []string{"a", "b", "c"} {
		w.plane.Apply(map[string]any{"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig", "metadata": map[string]any{"name": name},
			"spec": map[string]any{"config": map[string]any{"ignition": map[string]any{"version": "3.4.0"}}}})
	}
	w.plane.Apply(map[string]any{"apiVersion": "v1", "kind": "Node", "metadata": map[string]any{"name": node}})
	w.want("a")
	w.agent = filepath.Join(w.dir, "pivot-agent")
	w.build("pivot-agent", w.agent)
	for name, file := range map[string]struct {
		text string
		mode os.FileMode
	}{
		"pivot": {pivot, 0o755}, "current": {"a", 0o644}, "by": {"pivot", 0o644}, "downloaded": {"", 0o644}, "config": {string(w.plane.Kubeconfig(w.plane.NodeUser(node))), 0o600},
		"/run/ostree-booted": {"", 0o644},
	} {
		if !filepath.IsAbs(name) {
			name = filepath.Join(w.dir, name)
		}
		if err := os.WriteFile(name, []byte(file.text), file.mode); err != nil {
			t.Fatal(err)
		}
	}
	w.listen = controlplane.FreeAddress(t)
	return w
}

// build builds a program.
func (w *world) build(program, file string) {
	w.Helper()
	script.Build(w, file, "machine-pivot/cmd/"+program, "-ldflags", "-X main.version=0.0.0")
}

// want names the desired MachineConfig.
func (w *world) want(config string) {
	w.Helper()
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, api.DesiredConfig, config)
	if _, err := w.client.CoreV1().Nodes().Patch(w.Context(), node, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		w.Fatal(err)
	}
}

// process is a running agent.
type process struct {
	*exec.Cmd
	log *bytes.Buffer
}

// start starts an agent.
func (w *world) start(flags ...string) *process {
	w.Helper()
	return w.begin(exec.CommandContext(context.WithoutCancel(w.Context()), w.agent, append([]string{"node", "--node-name", node, "--kubeconfig", filepath.Join(w.dir, "config"),
		"--pivot", filepath.Join(w.dir, "pivot"), "--listen", w.listen}, flags...)...))
}

// begin starts an agent by a command.
func (w *world) begin(command *exec.Cmd) *process {
	w.Helper()
	p := &process{command, new(bytes.Buffer)}
	p.Stdout, p.Stderr = p.log, p.log
	if err := p.Start(); err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() {
		_ = p.Process.Kill()
		_ = p.Wait()
		if w.Failed() {
			w.Logf("the agent has said:\n%s", p.log)
		}
	})
	return p
}

// stopLimit is how long an agent may take to stop. The stacks of one that takes longer are in its log, and its exit
// status is not 0.
const stopLimit = 2 * time.Minute

// stop stops an agent by a signal, and returns its exit status.
func (p *process) stop(s syscall.Signal) int {
	_ = p.Process.Signal(s)
	hangs := time.AfterFunc(stopLimit, func() { _ = p.Process.Signal(syscall.SIGQUIT) })
	defer hangs.Stop()
	_ = p.Wait()
	return p.ProcessState.ExitCode()
}

// eventually waits until something is the case.
func (w *world) eventually(what string, is func() bool) {
	w.Helper()
	controlplane.Eventually(w, what, func(context.Context) bool { return is() })
}

// annotation returns an annotation of the node.
func (w *world) annotation(name string) string {
	w.Helper()
	n, err := w.client.CoreV1().Nodes().Get(w.Context(), node, metav1.GetOptions{})
	if err != nil {
		w.Fatal(err)
	}
	return n.Annotations[name]
}

// done waits until the node has a MachineConfig.
func (w *world) done(config string) {
	w.Helper()
	w.eventually("the node has "+config, func() bool {
		return w.annotation(api.CurrentConfig) == config && w.annotation(api.StateOfNode) == api.StateDone
	})
}

// has reports whether a file of the stand-in exists.
func (w *world) has(name string) bool {
	_, err := os.Stat(filepath.Join(w.dir, name))
	return err == nil
}

// calls returns the commands of pivot that were run.
func (w *world) calls() string {
	w.Helper()
	text, err := os.ReadFile(filepath.Join(w.dir, "calls"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		w.Fatal(err)
	}
	return string(text)
}

// page returns what the agent answers at a path.
func (w *world) page(path string) string {
	w.Helper()
	r, err := http.Get("http://" + w.listen + path)
	if err != nil {
		w.Fatal(err)
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if err != nil || r.StatusCode != http.StatusOK {
		w.Fatalf("%s: %s, %v\n%s", path, r.Status, err, text)
	}
	return string(text)
}

// system returns the status of the node's NodeSystem; "" if there is none.
func (w *world) system() string {
	data, err := w.client.CoreV1().RESTClient().Get().AbsPath("/apis/machine-pivot.io/v1alpha1/nodesystems/" + node).Do(w.Context()).Raw()
	var o struct{ Status json.RawMessage }
	if err != nil || json.Unmarshal(data, &o) != nil {
		return ""
	}
	return string(o.Status)
}

// condition returns the status of a condition of the node's MachineConfigNode; "" if there is none.
func (w *world) condition(name string) string {
	data, err := w.client.CoreV1().RESTClient().Get().AbsPath("/apis/machineconfiguration.openshift.io/v1/machineconfignodes/" + node).Do(w.Context()).Raw()
	var o struct {
		Status struct {
			Conditions []struct{ Type, Status string }
		}
	}
	if err != nil || json.Unmarshal(data, &o) != nil {
		return ""
	}
	for _, c := range o.Status.Conditions {
		if c.Type == name {
			return c.Status
		}
	}
	return ""
}

// event waits for an event of the node, because the agent tells what has happened after the state that it leads to.
func (w *world) event(reason string) {
	w.Helper()
	w.eventually("there is an event "+reason, func() bool {
		list, err := w.client.CoreV1().Events(corev1.NamespaceDefault).List(w.Context(), metav1.ListOptions{FieldSelector: "involvedObject.kind=Node,reason=" + reason})
		return err == nil && len(list.Items) > 0
	})
}

// peak returns the peak memory of a process in bytes.
func (w *world) peak(pid int) (kib int64) {
	w.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		w.Fatal(err)
	}
	_, text, _ := strings.Cut(string(status), "VmHWM:")
	if _, err := fmt.Sscan(text, &kib); err != nil {
		w.Fatal(err)
	}
	return kib << 10
}

// requests returns how many requests the agent has made; a watch counts when it ends.
func (w *world) requests() int { return len(w.plane.Requests("system:node:" + node)) }
