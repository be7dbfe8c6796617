package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machine-pivot/internal/cluster/api"
	"machine-pivot/internal/cluster/objects"
	"machine-pivot/test/worlds/controlplane"
	"machine-pivot/test/worlds/fleet"
	"machine-pivot/test/worlds/lab"
	"machine-pivot/test/worlds/vm"
)

// fleetWorld is a cluster whose nodes are machines, with one pool and the real controllers of a fleet.
type fleetWorld struct {
	t          *testing.T
	lab        *lab.Lab
	plane      *controlplane.ControlPlane
	client     client.Client
	fleet      *fleet.Fleet
	controller *fleet.Replica // the first one
	nodes      []*fleetNode
	most       atomic.Int32 // nodes that were out of service at a time
	status     statusView
}

// fleetNode is one of its nodes: its agent is a unit, with kubelet's credentials.
type fleetNode struct {
	powered
	name    string
	gate    *gate // to the API server
	kubelet *controlplane.Kubelet
	shell   operator
}

// The pool of all nodes, and the labels by which it finds them and its objects.
const (
	workerPool  = "worker"
	workerLabel = "node-role.kubernetes.io/worker"
	roleLabel   = "machineconfiguration.openshift.io/role"
)

// newFleetWorld starts a cluster with a pool, whose MachineConfig "00-worker" has a file, and with the first
// controller. It makes the machines of the nodes, which are off and have the pool's MachineConfig from their
// first boot. What pivotctl cluster status shows is written to show.
func newFleetWorld(t *testing.T, show io.Writer, names ...string) *fleetWorld {
	t.Helper()
	needMachines(t)
	l, err := lab.NewOf(t.Context(), "../../..", vm.GuestSpec{Suite: vm.Trixie}, os.Stderr, "install-agent")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	plane := controlplane.Start(t)
	w := &fleetWorld{t: t, lab: l, plane: plane}
	if w.client, err = client.New(plane.Admin(), client.Options{Scheme: controlplane.Scheme(t)}); err != nil {
		t.Fatal(err)
	}
	w.fleet = fleet.New(t, plane, "../../..", filepath.Join(l.Bin(), "pivot-fleet"))
	plane.Deploy("../../../deploy/host")
	w.status = newStatusView(t, plane, filepath.Join(l.Bin(), "pivotctl"), show)
	w.create(t, nodeConfig("00-worker"))
	plane.Apply(map[string]any{"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigPool",
		"metadata": map[string]any{"name": workerPool, "labels": map[string]string{"pool": workerPool}},
		"spec": map[string]any{
			"nodeSelector":          map[string]any{"matchLabels": map[string]string{workerLabel: ""}},
			"machineConfigSelector": map[string]any{"matchLabels": map[string]string{roleLabel: workerPool}},
			"maxUnavailable":        1,
		}})
	w.controller = w.fleet.Start()
	first := w.rendered(t, 1, "")
	for _, name := range names {
		w.nodes = append(w.nodes, w.newNode(t, name, first))
	}
	w.watchServing(t)
	return w
}

// newNode registers a node and makes its machine, with the MachineConfig that is rendered for its pool.
func (w *fleetWorld) newNode(t *testing.T, name, rendered string) *fleetNode {
	t.Helper()
	n := &fleetNode{name: name, gate: newGate(t, w.plane), kubelet: w.plane.Kubelet(t, name), shell: newOperator(t)}
	w.patchNode(t, name, map[string]any{"metadata": map[string]any{"labels": map[string]string{workerLabel: ""}}})
	files := agentFiles(w.plane, name, n.gate.ofGuests(), nodeConfig("00-worker"))
	machine, err := w.lab.MachineWith(t.Context(), name, lab.Setup{Encapsulated: w.encapsulated(t, rendered), Files: append(files, n.shell.files()...)}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	n.machine, n.rebooted = machine, func() {}
	n.idle = time.Hour // while other nodes are changed
	t.Cleanup(func() { n.explain(t) })
	return n
}

// explain keeps the console, after a failure.
func (n *fleetNode) explain(t *testing.T) {
	if !t.Failed() {
		return
	}
	file := filepath.Join(os.TempDir(), "console-"+n.name+".log")
	t.Logf("the console of %s is in %s (%v)", n.name, file, os.WriteFile(file, []byte(strings.Join(n.console(0), "\n")), 0o644))
}

// encapsulated returns a MachineConfig of the cluster as Ignition writes it on a new machine.
func (w *fleetWorld) encapsulated(t *testing.T, name string) []byte {
	t.Helper()
	var c objects.MachineConfig
	if err := w.client.Get(t.Context(), client.ObjectKey{Name: name}, &c); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(map[string]any{"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig",
		"metadata": map[string]any{"name": name}, "spec": c.Spec})
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// create creates or replaces a MachineConfig of the pool.
func (w *fleetWorld) create(t *testing.T, c lab.Config) {
	t.Helper()
	var object map[string]any
	if err := json.Unmarshal(configJSON(t, c), &object); err != nil {
		t.Fatal(err)
	}
	object["metadata"].(map[string]any)["labels"] = map[string]string{roleLabel: workerPool}
	w.plane.Apply(object)
}

// createPids creates a ContainerRuntimeConfig for the pool, which limits the processes of each container.
func (w *fleetWorld) createPids(limit int) {
	w.plane.Apply(map[string]any{"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "ContainerRuntimeConfig",
		"metadata": map[string]any{"name": pidsName},
		"spec": map[string]any{
			"machineConfigPoolSelector": map[string]any{"matchLabels": map[string]string{"pool": workerPool}},
			"containerRuntimeConfig":    map[string]any{"pidsLimit": limit},
		}})
}

const pidsName = "pids"

// together makes changes of the pool's objects, and lets them be rolled out together, as one MachineConfig of a
// number of sources.
func (w *fleetWorld) together(t *testing.T, sources int, change func()) (target string) {
	t.Helper()
	before := w.pool().Spec.Configuration.Name
	w.pause(t, true)
	change()
	target = w.rendered(t, sources, before)
	w.pause(t, false)
	return target
}

func (w *fleetWorld) pause(t *testing.T, paused bool) {
	t.Helper()
	body := fmt.Sprintf(`{"spec":{"paused":%v}}`, paused)
	if err := w.client.Patch(t.Context(), w.pool(), client.RawPatch(types.MergePatchType, []byte(body))); err != nil {
		t.Fatal(err)
	}
}

// delete deletes an object of the cluster.
func (w *fleetWorld) delete(t *testing.T, o client.Object, name string) {
	t.Helper()
	o.SetName(name)
	if err := w.client.Delete(t.Context(), o); err != nil {
		t.Fatal(err)
	}
}

// pool reads the pool; it is empty while that is impossible.
func (w *fleetWorld) pool() *objects.MachineConfigPool {
	var p objects.MachineConfigPool
	_ = w.client.Get(w.t.Context(), client.ObjectKey{Name: workerPool}, &p) // the caller looks again
	return &p
}

// rollout reads the pool's PoolRollout; it is empty while that is impossible.
func (w *fleetWorld) rollout() *objects.PoolRollout {
	var r objects.PoolRollout
	_ = w.client.Get(w.t.Context(), client.ObjectKey{Name: workerPool}, &r) // the caller looks again
	return &r
}

// rendered waits until another MachineConfig, of a number of sources, is rendered for the pool, and returns its name.
func (w *fleetWorld) rendered(t *testing.T, sources int, before string) (name string) {
	t.Helper()
	controlplane.Eventually(t, "another MachineConfig is rendered than "+before, func(context.Context) bool {
		c := w.pool().Spec.Configuration
		name = c.Name
		return len(c.Source) == sources && name != before
	})
	return name
}

// node reads a node; it is empty while that is impossible.
func (w *fleetWorld) node(name string) corev1.Node {
	var n corev1.Node
	_ = w.client.Get(w.t.Context(), client.ObjectKey{Name: name}, &n) // the caller looks again
	return n
}

func (w *fleetWorld) patchNode(t *testing.T, name string, patch any) {
	t.Helper()
	body, err := json.Marshal(patch)
	if err == nil {
		n := &corev1.Node{}
		n.Name = name
		err = w.client.Patch(t.Context(), n, client.RawPatch(types.MergePatchType, body))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// serves reports whether a node has what it should have, and takes pods.
func serves(n corev1.Node) bool {
	return n.Annotations[api.CurrentConfig] == n.Annotations[api.DesiredConfig] && n.Annotations[api.StateOfNode] == api.StateDone && !n.Spec.Unschedulable
}

// settled reports whether a node has a MachineConfig, and takes pods.
func (w *fleetWorld) settled(name, config string) bool {
	n := w.node(name)
	return n.Annotations[api.CurrentConfig] == config && serves(n)
}

// arrived reports whether all nodes have a MachineConfig, and the pool says so.
func (w *fleetWorld) arrived(config string) bool {
	p := w.pool()
	return p.Status.Configuration.Name == config && int(p.Status.UpdatedMachineCount) == len(w.nodes) &&
		!slices.ContainsFunc(w.nodes, func(n *fleetNode) bool { return !w.settled(n.name, config) })
}

// watchServing counts, until the end of the test, how many nodes that have joined are out of service at a time.
func (w *fleetWorld) watchServing(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			w.countServing(ctx)
			select {
			case <-ctx.Done():
			case <-time.After(200 * time.Millisecond):
			}
		}
	}()
	t.Cleanup(func() { cancel(); <-ended })
}

func (w *fleetWorld) countServing(ctx context.Context) {
	var all corev1.NodeList
	if w.client.List(ctx, &all) != nil {
		return // the next time
	}
	var out int32
	for _, n := range all.Items {
		if n.Annotations[api.CurrentConfig] != "" && !serves(n) {
			out++
		}
	}
	w.most.Store(max(w.most.Load(), out))
}

// until waits until something is reached, and shows the fleet's status meanwhile. It fails when a machine hangs
// or goes off.
func (w *fleetWorld) until(t *testing.T, what string, reached func() bool) {
	t.Helper()
	began := time.Now()
	for !reached() {
		w.status.look(t.Context())
		for _, n := range w.nodes {
			if err := n.failure(); err != nil {
				t.Fatalf("this never happens: %s: %s: %v", what, n.name, err)
			}
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-t.Context().Done():
			t.Fatalf("this did not happen in time: %s", what)
		}
	}
	w.status.last(t.Context())
	t.Logf("%.0f s until %s", time.Since(began).Seconds(), what)
}

// statusView shows what "pivotctl cluster status" prints, each time that it changes.
type statusView struct {
	to            io.Writer
	program, file string // pivotctl, and its credentials
	shown         string
	began, next   time.Time
}

func newStatusView(t *testing.T, plane *controlplane.ControlPlane, program string, to io.Writer) statusView {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(file, plane.Kubeconfig(plane.Admin()), 0o600); err != nil {
		t.Fatal(err)
	}
	return statusView{to: to, program: program, file: file, began: time.Now()}
}

// look shows the status if it has changed, at most every two seconds.
func (s *statusView) look(ctx context.Context) {
	if s.to == nil || time.Now().Before(s.next) {
		return
	}
	s.last(ctx)
	s.next = time.Now().Add(2 * time.Second)
}

// last shows the status if it has changed.
func (s *statusView) last(ctx context.Context) {
	if s.to == nil {
		return
	}
	out, err := exec.CommandContext(ctx, s.program, "cluster", "status", "--kubeconfig", s.file).CombinedOutput()
	if err != nil {
		out = fmt.Appendf(out, "pivotctl cluster status: %v\n", err)
	}
	if string(out) != s.shown {
		s.shown = string(out)
		fmt.Fprintf(s.to, "\n%4.0f s  %s\n", time.Since(s.began).Seconds(), strings.ReplaceAll(strings.TrimSpace(s.shown), "\n", "\n        "))
	}
}
