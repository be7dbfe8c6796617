package rollout_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	v1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"machine-pivot/internal/cluster/api"
	"machine-pivot/internal/cluster/rollout"
	"machine-pivot/test/worlds/controlplane"
)

// plane is a real API server with nodes in the pool worker.
type plane struct {
	*testing.T
	*controlplane.ControlPlane
	client.Client
	nodes kubernetes.Interface
}

const account = "system:serviceaccount:pivot-fleet:pivot-fleet-controller"

func newPlane(t *testing.T, nodes int) plane {
	t.Helper()
	c := controlplane.Start(t)
	c.Deploy("../../../deploy/base")
	c.ApplyFile("../../../deploy/fleet/rbac-rollout.yaml")
	ctrl.SetLogger(logr.FromSlogHandler(slog.NewTextHandler(io.Discard, nil)))
	w := plane{t, c, newClient(t, c.Admin()), c.Client(c.Admin())}
	c.Apply(map[string]any{"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigPool", "metadata": map[string]any{"name": "worker"},
		"spec": map[string]any{"nodeSelector": map[string]any{"matchLabels": map[string]string{role("worker"): ""}}, "maxUnavailable": 3,
			"configuration": map[string]any{"name": "rendered-worker-1"}}})
	for i := range nodes {
		w.join(fmt.Sprintf("n%d", i))
	}
	return w
}

func newClient(t *testing.T, of *rest.Config) client.Client {
	t.Helper()
	c, err := client.New(of, client.Options{Scheme: controlplane.Scheme(t)})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// join adds a Ready node with its configuration.
func (w plane) join(name string) {
	w.Helper()
	n := &corev1.Node{ObjectMeta: v1.ObjectMeta{Name: name, Labels: map[string]string{role("worker"): ""}, Annotations: map[string]string{
		api.DesiredConfig: "rendered-worker-1", api.CurrentConfig: "rendered-worker-1", api.StateOfNode: api.StateDone}}}
	if err := w.Create(w.Context(), n); err != nil {
		w.Fatal(err)
	}
	s := &api.NodeSystem{ObjectMeta: v1.ObjectMeta{Name: name}}
	if err := w.Create(w.Context(), s); client.IgnoreAlreadyExists(err) != nil {
		w.Fatal(err)
	}
	w.say(w.Context(), name, "rendered-worker-1", nil)
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	if err := w.Client.Status().Update(w.Context(), n); err != nil {
		w.Fatal(err)
	}
}

// say writes the status of a node's system, as its agent does.
func (w plane) say(ctx context.Context, name, current string, d *api.EarlyDownload) {
	s := api.NodeSystemStatus{Config: api.ConfigNames{Current: current}, AgentVersion: "test", Download: d}
	s.KernelArguments = api.KernelArguments{Missing: []string{}, Excess: []string{}}
	body, err := json.Marshal(map[string]any{"status": s})
	if err == nil {
		err = w.Client.Status().Patch(ctx, &api.NodeSystem{ObjectMeta: v1.ObjectMeta{Name: name}}, client.RawPatch(types.MergePatchType, body))
	}
	if err != nil && ctx.Err() == nil {
		w.Error(err)
	}
}

// kube is the product's access, without caches.
func (w plane) kube() *rollout.Kube {
	c := newClient(w.T, w.User(account))
	return &rollout.Kube{Cached: c, Direct: c, Writer: c, Status: c.Status(), Now: time.Now}
}

func (w plane) fleet(k *rollout.Kube) rollout.Fleet {
	w.Helper()
	f, err := k.Fleet(w.Context())
	if err != nil {
		w.Fatal(err)
	}
	return f
}

// TestKube: each write fails if the object is another version than was read, at a real API server and with the
// rights of deploy/fleet.
func TestKube(t *testing.T) {
	w := newPlane(t, 1)
	k := w.kube()
	controlplane.Eventually(t, "the rights", func(ctx context.Context) bool { _, err := k.Fleet(ctx); return err == nil })
	ctx, old := t.Context(), w.fleet(k)
	conflicts := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, rollout.ErrConflict) {
			t.Errorf("%s: %v, want a conflict", what, err)
		}
	}
	works := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	status := api.PoolRolloutStatus{Target: "rendered-worker-2", Taken: []string{"n0"}, Down: []string{"n0"}, Round: 1, Failed: []api.FailedNode{{Name: "n0", Reason: "x"}}, FailedCount: 21}
	works("create", k.Take(ctx, old.Pools[0], status))
	conflicts("create again", k.Take(ctx, old.Pools[0], status))
	first := w.fleet(k)
	if r := first.Pools[0].Rollout; r.Target != status.Target || len(r.Taken) != 1 || len(r.Down) != 1 || r.Round != 1 || len(r.Failed) != 1 || r.FailedCount != 21 {
		t.Errorf("the status is %+v", r)
	}
	works("give all slots back", k.Take(ctx, first.Pools[0], api.PoolRolloutStatus{Target: "rendered-worker-2", Round: 2}))
	conflicts("take with an old version", k.Take(ctx, first.Pools[0], status))
	if r := w.fleet(k).Pools[0].Rollout; len(r.Taken) != 0 || len(r.Failed) != 0 {
		t.Errorf("an empty list is not written: %+v", r)
	}
	conflicts("the same status with an old version", k.Take(ctx, first.Pools[0], api.PoolRolloutStatus{Target: "rendered-worker-2", Round: 2}))
	works("fence", k.Fence(ctx, first.Nodes[0], "7"))
	conflicts("give to a node that was fenced", k.Give(ctx, rollout.Change{Node: first.Nodes[0], Config: "rendered-worker-2"}))
	conflicts("fence an old version", k.Fence(ctx, first.Nodes[0], "7"))
	works("ask", k.AskDownload(ctx, w.fleet(k).Nodes[0], "rendered-worker-2"))
	now := w.fleet(k)
	conflicts("ask an old version", k.AskDownload(ctx, first.Nodes[0], "rendered-worker-3"))
	if got := now.Nodes[0].Annotations[api.Download]; got != "rendered-worker-2" {
		t.Errorf("the node is asked to download %q", got)
	}
	works("give", k.Give(ctx, rollout.Change{Node: now.Nodes[0], Config: "rendered-worker-2"}))
	if got := w.fleet(k).Nodes[0].Annotations[api.DesiredConfig]; got != "rendered-worker-2" {
		t.Errorf("the node has the desired configuration %q", got)
	}
	if got, asked := w.fleet(k).Nodes[0].Annotations[api.Download]; asked {
		t.Errorf("a node with another configuration is asked to download %q", got)
	}
	w.givesAgain(k)
	w.givesBack(k)
	w.holds(k, status)
	works("show", k.Show(ctx, now.Pools[0], api.MachineConfigPoolStatus{MachineCount: 1}))
	conflicts("show an old version", k.Show(ctx, now.Pools[0], api.MachineConfigPoolStatus{MachineCount: 2}))
	for name, want := range map[string]bool{"n0": true, "n9": false} {
		if exists, err := k.Exists(ctx, name); err != nil || exists != want {
			t.Errorf("%s exists: %v, %v", name, exists, err)
		}
	}
	works("delete a node", w.nodes.CoreV1().Nodes().Delete(ctx, "n0", v1.DeleteOptions{}))
	conflicts("give to a deleted node", k.Give(ctx, rollout.Change{Node: w.withNode(now), Config: "rendered-worker-1"}))
}

// givesAgain checks that a node that is given what it says has failed tries it again, and that another failure stays said.
func (w plane) givesAgain(k *rollout.Kube) {
	w.Helper()
	for _, failed := range []string{"rendered-worker-1", "rendered-worker-2"} {
		n := w.fleet(k).Nodes[0]
		if err := w.Patch(w.Context(), &corev1.Node{ObjectMeta: v1.ObjectMeta{Name: n.Name}}, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"`+api.FailedConfig+`":"`+failed+`"}}}`))); err != nil {
			w.Fatal(err)
		}
		if err := k.Give(w.Context(), rollout.Change{Node: w.fleet(k).Nodes[0], Config: "rendered-worker-2"}); err != nil {
			w.Error(err)
		}
		if _, said := w.fleet(k).Nodes[0].Annotations[api.FailedConfig]; said != (failed == "rendered-worker-1") {
			w.Errorf("%s has failed, and is still said: %v", failed, said)
		}
	}
}

// givesBack checks that a node with a slot that cannot start the target is given its earlier configuration from the
// PoolRollout, and then nothing any more.
func (w plane) givesBack(k *rollout.Kube) {
	w.Helper()
	note := func(text string) {
		w.Helper()
		if err := w.Patch(w.Context(), &corev1.Node{ObjectMeta: v1.ObjectMeta{Name: "n0"}}, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":`+text+`}}`))); err != nil {
			w.Fatal(err)
		}
	}
	p := w.fleet(k).Pools[0]
	status := p.Rollout
	status.Taken, status.Begun = []string{"n0"}, []api.BegunNode{{Name: "n0", Since: v1.Time{Time: time.Now()}, From: "rendered-worker-before"}}
	if err := k.Take(w.Context(), p, status); err != nil {
		w.Fatal(err)
	}
	target := w.fleet(k).Pools[0].Configuration.Name
	n := w.fleet(k).Nodes[0]
	said := api.Cannot{Config: target, BootID: n.BootID, Verdicts: "processor", Reason: strings.Repeat("ä", 3000)}.String()
	note(fmt.Sprintf(`{%q:%q,%q:%q,%q:%q,%q:%q}`, api.DesiredConfig, target, api.FailedConfig, target, api.StateOfNode, api.StateDegraded, api.CannotStart, said))
	d := rollout.Decide(w.fleet(k)).Pools[0]
	if len(d.Given) != 1 || d.Given[0].Config != "rendered-worker-before" || !strings.Contains(d.Rollout.Waiting, "n0 (processor): ä") {
		w.Fatalf("gives %+v, waits %q", d.Given, d.Rollout.Waiting)
	}
	if err := k.Take(w.Context(), w.fleet(k).Pools[0], d.Rollout); err != nil {
		w.Error(err)
	}
	for _, config := range []string{"rendered-worker-before", ""} {
		if err := k.Give(w.Context(), rollout.Change{Node: w.fleet(k).Nodes[0], Config: config}); err != nil {
			w.Error(err)
		}
		desired, has := w.fleet(k).Nodes[0].Annotations[api.DesiredConfig]
		if desired != config || has != (config != "") {
			w.Errorf("given %q, it has %q", config, desired)
		}
	}
	note(fmt.Sprintf(`{%q:null,%q:null,%q:%q,%q:"rendered-worker-2"}`, api.CannotStart, api.FailedConfig, api.StateOfNode, api.StateDone, api.DesiredConfig))
}

// holds checks that a PoolRollout with slots stays when it is deleted, until the finalizer is removed, in the version that
// was read only.
func (w plane) holds(k *rollout.Kube, slots api.PoolRolloutStatus) {
	w.Helper()
	read := func() rollout.Pool { return w.fleet(k).Pools[0] }
	before := read()
	if !slices.Equal(before.Finalizers, []string{rollout.Finalizer}) {
		w.Errorf("a PoolRollout that was created with slots has the finalizers %q", before.Finalizers)
	}
	version, err := k.Hold(w.Context(), before, []string{"example.com/other", rollout.Finalizer})
	if held := read(); err != nil || held.RolloutVersion != version || len(held.Finalizers) != 2 {
		w.Errorf("the version is %s, read as %s with %q: %v", version, held.RolloutVersion, held.Finalizers, err)
	}
	if _, err := k.Hold(w.Context(), before, nil); !errors.Is(err, rollout.ErrConflict) {
		w.Errorf("an old version loses its finalizer: %v", err)
	}
	if err := k.Take(w.Context(), read(), slots); err != nil {
		w.Error(err)
	}
	w.delete(&api.PoolRollout{ObjectMeta: v1.ObjectMeta{Name: "worker"}})
	deleted := read()
	if !deleted.Deleted || !slices.Equal(deleted.Rollout.Taken, slots.Taken) {
		w.Errorf("a deleted PoolRollout with slots is %+v", deleted)
	}
	if _, err := k.Hold(w.Context(), deleted, nil); err != nil {
		w.Error(err)
	}
	if err := k.Take(w.Context(), deleted, slots); !errors.Is(err, rollout.ErrConflict) {
		w.Errorf("one that is gone takes slots: %v", err)
	}
	if gone := read(); gone.RolloutVersion != "" || gone.Deleted {
		w.Errorf("without its finalizer, there is %+v", gone)
	}
}

func (w plane) withNode(f rollout.Fleet) rollout.Node { return f.Nodes[0] }

// TestRollout: two controllers without a Lease roll a configuration out to 20 nodes at a real API server. While the
// pool is paused, all nodes download it, no more than parallelDownloads at a time. Then never more than maxUnavailable
// are disturbed, and the pool says what it waits for and then that it has arrived.
func TestRollout(t *testing.T) {
	const nodes, limit, downloads = 20, 3, 4
	w := newPlane(t, nodes)
	for range 2 {
		w.start()
	}
	w.obey()
	pool := &api.MachineConfigPool{}
	read := func(ctx context.Context) bool {
		return w.Get(ctx, client.ObjectKey{Name: "worker"}, pool) == nil
	}
	controlplane.Eventually(t, "the first status", func(ctx context.Context) bool { return read(ctx) && pool.Status.UpdatedMachineCount == nodes })
	change := func(o client.Object, body string) {
		t.Helper()
		if err := w.Patch(t.Context(), o, client.RawPatch(types.MergePatchType, []byte(body))); err != nil {
			t.Fatal(err)
		}
	}
	before := len(w.Requests(account))
	change(&api.PoolRollout{ObjectMeta: v1.ObjectMeta{Name: "worker"}}, fmt.Sprintf(`{"spec":{"parallelDownloads":%d}}`, downloads))
	wrong := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"parallelDownloads":"101%"}}`))
	if err := w.Patch(t.Context(), &api.PoolRollout{ObjectMeta: v1.ObjectMeta{Name: "worker"}}, wrong); !apierrors.IsInvalid(err) {
		t.Errorf("101%% of the nodes: %v", err)
	}
	change(pool, `{"spec":{"paused":true,"configuration":{"name":"rendered-worker-2"}}}`)
	if at := w.downloaded(nodes); at > downloads || at == 0 {
		t.Errorf("%d nodes were asked to download at a time", at)
	}
	change(pool, `{"spec":{"paused":false}}`)
	most, said := 0, ""
	deadline := time.Now().Add(3 * time.Minute)
	for time.Now().Before(deadline) {
		list := &corev1.NodeList{}
		if err := w.List(t.Context(), list); err != nil || !read(t.Context()) {
			t.Fatal(err)
		}
		disturbed := 0
		for _, n := range list.Items {
			if n.Annotations[api.DesiredConfig] != n.Annotations[api.CurrentConfig] {
				disturbed++
			}
		}
		most = max(most, disturbed)
		for _, c := range pool.Status.Conditions {
			if c.Type == api.PoolUpdating && c.Message != "" {
				said = c.Message
			}
		}
		if pool.Status.Configuration.Name == "rendered-worker-2" {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	requests := len(w.Requests(account)) - before
	t.Logf("%d nodes, at most %d at a time, %.1f requests a node by two controllers; the last sentence: %s", nodes, most, float64(requests)/nodes, said)
	if pool.Status.Configuration.Name != "rendered-worker-2" || most > limit || most == 0 || said == "" {
		t.Errorf("the pool has %+v; %d nodes at a time", pool.Status, most)
	}
}

// downloaded waits until all nodes have downloaded what they were asked for, and returns how many were asked at a
// time.
func (w plane) downloaded(nodes int) (most int) {
	w.Helper()
	controlplane.Eventually(w.T, "all downloads", func(ctx context.Context) bool {
		list, systems := &corev1.NodeList{}, &api.NodeSystemList{}
		if w.List(ctx, list) != nil || w.List(ctx, systems) != nil {
			return false
		}
		asked, done := 0, 0
		for _, n := range list.Items {
			if n.Annotations[api.Download] != "" {
				asked++
			}
		}
		for _, s := range systems.Items {
			if d := s.Status.Download; d != nil && *d == (api.EarlyDownload{Config: "rendered-worker-2"}) {
				done++
			}
		}
		most = max(most, asked)
		return done == nodes && asked == 0
	})
	return most
}

// start runs a controller with the rights of deploy/fleet, without a Lease.
func (w plane) start() {
	w.Helper()
	m, err := ctrl.NewManager(w.User(account), manager.Options{Scheme: controlplane.Scheme(w.T),
		Metrics: server.Options{BindAddress: "0"}, Cache: cache.Options{ByObject: rollout.Caches()},
		Controller: config.Controller{SkipNameValidation: new(true)}})
	if err != nil {
		w.Fatal(err)
	}
	if err := rollout.Setup(m, rollout.Options{Metrics: prometheus.NewRegistry()}); err != nil {
		w.Fatal(err)
	}
	ended := make(chan error, 1)
	ctx, cancel := context.WithCancel(context.Background())
	go func() { ended <- m.Start(ctx) }()
	w.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			w.Error(err)
		}
	})
}

// obey lets each node have what it is given, a little later.
func (w plane) obey() {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			list := &corev1.NodeList{}
			_ = w.List(ctx, list)
			for i := range list.Items {
				n := &list.Items[i]
				desired, current, asked := n.Annotations[api.DesiredConfig], n.Annotations[api.CurrentConfig], n.Annotations[api.Download]
				if desired != current {
					body := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, api.CurrentConfig, desired)
					_ = w.Patch(ctx, n, client.RawPatch(types.MergePatchType, []byte(body)))
					w.say(ctx, n.Name, desired, nil)
				} else if asked != "" {
					w.say(ctx, n.Name, current, &api.EarlyDownload{Config: asked})
				}
			}
			select {
			case <-ctx.Done():
			case <-time.After(500 * time.Millisecond):
			}
		}
	}()
	w.Cleanup(func() { cancel(); <-ended })
}
