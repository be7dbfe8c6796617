package kube_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"machine-pivot/internal/cluster/api"
	"machine-pivot/internal/cluster/kube"
	"machine-pivot/internal/cluster/node"
	"machine-pivot/internal/fault"
	"machine-pivot/test/worlds/controlplane"
)

// world is a control plane with what deploy/host has, two nodes, and the agent of the first.
type world struct {
	*testing.T
	*kube.Cluster
	plane  *controlplane.ControlPlane
	admin  rest.Interface
	client kubernetes.Interface
}

func newWorld(t *testing.T) world {
	t.Helper()
	c := controlplane.Start(t)
	client := func(config *rest.Config) rest.Interface {
		api, err := kube.New(config)
		if err != nil {
			t.Fatal(err)
		}
		return api
	}
	w := world{t, &kube.Cluster{Name: "n1", API: client(c.NodeUser("n1")), Now: time.Now}, c, client(c.Admin()), c.Client(c.Admin())}
	c.Deploy("../../../deploy/host")
	c.Deploy("../../../deploy/by-name")
	for _, name := range []string{"n1", "n2"} {
		c.Apply(map[string]any{"apiVersion": "v1", "kind": "Node", "metadata": map[string]any{"name": name, "annotations": map[string]any{"other": "kept"}}})
	}
	c.Apply(map[string]any{"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig", "metadata": map[string]any{"name": "mc"},
		"spec": map[string]any{"config": map[string]any{"ignition": map[string]any{"version": "3.4.0"}, "x": []int{1, 2}}, "kernelArguments": []string{"quiet"}}})
	return w
}

// eventually tries something until it succeeds, since schemas and rights take effect a little later.
func (w world) eventually(what string, try func() error) {
	w.Helper()
	var err error
	for range 1200 {
		if err = try(); err == nil {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	w.Fatalf("%s: %v", what, err)
}

// TestCluster is the agent's access with a node's own credentials, at a real API server.
func TestCluster(t *testing.T) {
	w := newWorld(t)
	ctx := t.Context()
	t.Run("MachineConfigs", func(t *testing.T) {
		var before []byte
		w.eventually("read a MachineConfig", func() (err error) {
			before, err = w.MachineConfig(ctx, "mc")
			return err
		})
		if !strings.Contains(string(before), `"x":[1,2]`) {
			t.Errorf("the MachineConfig is %s", before)
		}
		w.plane.Apply(map[string]any{"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig", "metadata": map[string]any{"name": "mc", "finalizers": []string{"a.example/b"}},
			"spec": map[string]any{"config": map[string]any{"ignition": map[string]any{"version": "3.4.0"}, "x": []int{1, 2}}, "kernelArguments": []string{"quiet"}}})
		if after, err := w.MachineConfig(ctx, "mc"); err != nil || string(after) != string(before) {
			t.Errorf("it is another one when its metadata changes: %s, %v", after, err)
		}
		for _, name := range []string{"missing", "", "..", "a/b", "mc?x=y", "Ä", strings.Repeat("a", 300)} {
			if _, err := w.MachineConfig(ctx, name); !errors.Is(err, node.ErrNoMachineConfig) {
				t.Errorf("%q: %v", name, err)
			}
		}
	})
	t.Run("a MachineConfig as large as the API server accepts", func(t *testing.T) {
		const size = 1_300_000 // etcd takes requests of 1.5 MiB
		w.plane.Apply(map[string]any{"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig", "metadata": map[string]any{"name": "large"},
			"spec": map[string]any{"config": map[string]any{"x": strings.Repeat("x", size)}}})
		if data, err := w.MachineConfig(ctx, "large"); err != nil || len(data) < size {
			t.Errorf("%d bytes, %v", len(data), err)
		}
	})
	t.Run("a MachineConfig that the node may not read", func(t *testing.T) {
		const role = "pivot-agent-by-name"
		if err := w.client.RbacV1().ClusterRoleBindings().Delete(ctx, role, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		w.eventually("it is refused", func() error {
			if _, err := w.MachineConfig(ctx, "mc"); !apierrors.IsForbidden(err) || errors.Is(err, node.ErrNoMachineConfig) {
				return fmt.Errorf("it is not: %w", err)
			}
			return nil
		})
		w.Now = func() time.Time { return time.Now().Add(2 * time.Minute) }
		if _, err := w.MachineConfig(ctx, "mc"); !errors.Is(err, node.ErrNoMachineConfig) || !strings.Contains(err.Error(), "forbidden") {
			t.Errorf("for two minutes: %v", err)
		}
		w.plane.ApplyFile("../../../deploy/by-name/rbac.yaml")
		w.eventually("it is read again", func() error { _, err := w.MachineConfig(ctx, "mc"); return err })
		w.Now = time.Now
	})
	t.Run("node", func(t *testing.T) { nodeObject(ctx, t, w) })
	t.Run("objects", func(t *testing.T) { objects(ctx, t, w) })
	t.Run("events", func(t *testing.T) {
		n, err := w.Node(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			if err := w.Record(ctx, n, node.Event{Reason: api.EventCordon, Message: strings.Repeat("ä", 2000), Warning: true}); err != nil {
				t.Fatal(err)
			}
		}
		events, err := w.client.CoreV1().Events("default").List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.kind=Node,involvedObject.name=n1"})
		if err != nil || len(events.Items) != 1 || events.Items[0].Type != "Warning" || events.Items[0].InvolvedObject.UID != types.UID(n.UID) {
			t.Errorf("%+v, %v", events, err)
		}
	})
	t.Run("watch", func(t *testing.T) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		changed := make(chan struct{}, 100)
		go w.Watch(ctx, func() { changed <- struct{}{} })
		next := func(what string) {
			select {
			case <-changed:
			case <-time.After(2 * time.Minute):
				t.Fatalf("%s is not noticed", what)
			}
		}
		next("the beginning")
		patch := func(body string, sub ...string) {
			if _, err := w.client.CoreV1().Nodes().Patch(ctx, "n1", types.MergePatchType, []byte(body), metav1.PatchOptions{}, sub...); err != nil {
				t.Fatal(err)
			}
		}
		patch(`{"status":{"phase":"Running"}}`, "status")
		patch(`{"metadata":{"annotations":{"x":"1"}}}`)
		next("an annotation")
		patch(`{"spec":{"unschedulable":true}}`)
		next("a cordon")
		if len(changed) > 0 {
			t.Error("the status counts as a change")
		}
	})
}

func nodeObject(ctx context.Context, t *testing.T, w world) {
	value := "b"
	n, err := w.Node(ctx)
	if err != nil || n.Name != "n1" || n.Annotations["other"] != "kept" || n.Unschedulable {
		t.Fatalf("%+v, %v", n, err)
	}
	cordoned, err := w.Patch(ctx, n, node.Patch{Annotations: map[string]*string{"a.example/a": &value, "a.example/none": nil}, Unschedulable: new(true)})
	if err != nil || !cordoned.Unschedulable || cordoned.Annotations["a.example/a"] != "b" || cordoned.Annotations["other"] != "kept" {
		t.Fatalf("%+v, %v", cordoned, err)
	}
	if _, err := w.Patch(ctx, n, node.Patch{Unschedulable: new(false)}); !errors.Is(err, node.ErrConflict) {
		t.Errorf("a change of what was read before: %v", err)
	}
	after, err := w.Patch(ctx, cordoned, node.Patch{Annotations: map[string]*string{"a.example/a": nil}, Unschedulable: new(false)})
	if _, there := after.Annotations["a.example/a"]; err != nil || after.Unschedulable || there {
		t.Errorf("%+v, %v", after, err)
	}
	other := *w.Cluster
	other.Name = "n3"
	if _, err := other.Node(ctx); fault.KindOf(err) != fault.Refused || !strings.Contains(err.Error(), `User "system:node:n1" cannot get resource "nodes"`) || !strings.Contains(fault.HintOf(err), "--node-name") {
		t.Errorf("another node: %v; %s", err, fault.HintOf(err))
	}
	other.API = w.admin
	if _, err := other.Node(ctx); fault.KindOf(err) != fault.Unavailable || !strings.Contains(fault.HintOf(err), "registered") {
		t.Errorf("a node that is not registered: %v; %s", err, fault.HintOf(err))
	}
}

// objects writes the objects of the node, twice, and with all fields.
func objects(ctx context.Context, t *testing.T, w world) {
	n, err := w.Node(ctx)
	if err != nil {
		t.Fatal(err)
	}
	system := api.NodeSystemStatus{
		Config: api.ConfigNames{Current: "a", Desired: "b"}, Step: "wait", Progress: &api.Progress{Step: "pull", Percent: 3, BytesPulled: 1 << 40},
		Booted: &api.System{Image: "r.example/os@sha256:0", Commit: "c"}, Pending: &api.System{Commit: "d"},
		KernelArguments: api.KernelArguments{Missing: []string{"quiet"}, Excess: []string{}},
		Proof:           &api.Proof{Differences: []string{"x"}, Number: 1}, Failure: "f", LeftOut: []string{"disks"}, BootID: "b", AgentVersion: "1", PivotVersion: "1",
	}
	progressed := api.Progressed{Stage: api.StageDrain, Emptied: true, Config: "b"}
	for range 2 {
		if err := w.PublishSystem(ctx, n, system); err != nil {
			t.Fatal(err)
		}
		if err := w.PublishUpdate(ctx, n, progressed); err != nil { // of a node that has no current one yet
			t.Fatal(err)
		}
		system.Progress, progressed.Stage = nil, api.StageNone
		system.Config.Current = ""
	}
	read := func(path string) string {
		t.Helper()
		data, err := w.admin.Get().AbsPath(path).Do(ctx).Raw()
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	if got := read("/apis/machine-pivot.io/v1alpha1/nodesystems/n1"); !strings.Contains(got, `"missing":["quiet"]`) || strings.Contains(got, "bytesPulled") || !strings.Contains(got, `"uid":"`+n.UID) {
		t.Errorf("NodeSystem %s", got)
	}
	if got := read("/apis/machineconfiguration.openshift.io/v1/machineconfignodes/n1"); !strings.Contains(got, `"type":"Updated"`) || !strings.Contains(got, `"pool":{"name":"worker"}`) {
		t.Errorf("MachineConfigNode %s", got)
	}
	publishedWhole(ctx, t, w, read)
	keepTimes(ctx, t, w, read)
}

// keepTimes publishes an update by one process after the other: a condition that keeps its status keeps its time.
func keepTimes(ctx context.Context, t *testing.T, w world, read func(path string) string) {
	n, err := w.Node(ctx)
	if err != nil {
		t.Fatal(err)
	}
	times := map[metav1.Condition]time.Time{} // without the time
	for i, stage := range []api.Stage{api.StagePrepare, api.StagePrepare, api.StageDrain, api.StageApply} {
		process := &kube.Cluster{Name: w.Name, API: w.API, Now: func() time.Time { return time.Now().Add(time.Duration(i) * time.Hour) }}
		if err := process.PublishUpdate(ctx, n, api.Progressed{Config: "mc", Stage: stage, Emptied: true}); err != nil {
			t.Fatal(err)
		}
		var got struct{ Status api.MachineConfigNodeStatus }
		if err := json.Unmarshal([]byte(read("/apis/machineconfiguration.openshift.io/v1/machineconfignodes/n1")), &got); err != nil {
			t.Fatal(err)
		}
		seen := map[metav1.Condition]time.Time{}
		for _, c := range got.Status.Conditions {
			status := metav1.Condition{Type: c.Type, Status: c.Status}
			if before, same := times[status]; same != before.Equal(c.LastTransitionTime.Time) {
				t.Errorf("process %d: %s is %s since %s, before since %s", i, c.Type, c.Status, c.LastTransitionTime, before)
			}
			seen[status] = c.LastTransitionTime.Time
		}
		times = seen
	}
}

// publishedWhole publishes other states of a node: what is not the status follows, too, also after somebody has deleted
// the object.
func publishedWhole(ctx context.Context, t *testing.T, w world, read func(path string) string) {
	const path = "/apis/machineconfiguration.openshift.io/v1/machineconfignodes/n1"
	n, err := w.Node(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ desired, pool string }{{"rendered-worker-1", "worker"}, {"rendered-my-gpu-1", "my-gpu"}, {"mine", "worker"}, {"mine", "worker"}} {
		n.Annotations[api.CurrentConfig] = c.desired
		if err := w.PublishUpdate(ctx, n, api.Progressed{Config: c.desired}); err != nil {
			t.Fatal(err)
		}
		var got struct {
			Spec struct {
				Pool          struct{ Name string }
				ConfigVersion struct{ Desired string }
			}
			Status api.MachineConfigNodeStatus
		}
		if err := json.Unmarshal([]byte(read(path)), &got); err != nil {
			t.Fatal(err)
		}
		if got.Spec.Pool.Name != c.pool || got.Spec.ConfigVersion.Desired != c.desired || got.Status.ConfigVersion != (api.ConfigVersion{Current: c.desired, Desired: c.desired}) {
			t.Errorf("with %s: %+v", c.desired, got)
		}
		if c.desired == "mine" {
			if err := w.admin.Delete().AbsPath(path).Do(ctx).Error(); err != nil {
				t.Fatal(err)
			}
		}
	}
}
