package rollout_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	v1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machine-pivot/internal/cluster/api"
	"machine-pivot/internal/cluster/rollout"
	"machine-pivot/test/worlds/controlplane"
)

// TestAdoptAtServer: at a real API server, with the rights of deploy/fleet, nodes without any annotation make their pool
// not updated, and spec.adopt gives one of them the pool's configuration.
func TestAdoptAtServer(t *testing.T) {
	w := newPlane(t, 0)
	for _, name := range []string{"plain-0", "plain-1"} {
		n := &corev1.Node{ObjectMeta: v1.ObjectMeta{Name: name, Labels: map[string]string{role("worker"): ""}}}
		if err := w.Create(t.Context(), n); err != nil {
			t.Fatal(err)
		}
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		if err := w.Client.Status().Update(t.Context(), n); err != nil {
			t.Fatal(err)
		}
	}
	one := &api.MachineConfigPool{ObjectMeta: v1.ObjectMeta{Name: "worker"}}
	if err := w.Patch(t.Context(), one, mergePatch(`{"spec":{"maxUnavailable":1}}`)); err != nil {
		t.Fatal(err)
	}
	k := w.kube()
	k.Events = events.NewFakeRecorder(100)
	controlplane.Eventually(t, "the rights", func(ctx context.Context) bool { _, err := k.Fleet(ctx); return err == nil })
	pass := func() (given []string, p rollout.Pool) {
		t.Helper()
		if _, err := (rollout.Controller{Cluster: k, Decide: rollout.Decide}).Pass(t.Context()); err != nil {
			t.Fatal(err)
		}
		f := w.fleet(k)
		for _, n := range f.Nodes {
			if n.Annotations[api.DesiredConfig] == "rendered-worker-1" {
				given = append(given, n.Name)
			}
		}
		return given, f.Pools[0]
	}
	if given, p := pass(); len(given) > 0 || p.Status.MachineCount != 2 || !strings.HasPrefix(p.Rollout.Waiting, "2 nodes are not taken in: set spec.adopt") {
		t.Errorf("without adopt: %q have it; %+v", given, p.Status)
	}
	if err := w.Patch(t.Context(), &api.PoolRollout{ObjectMeta: v1.ObjectMeta{Name: "worker"}}, mergePatch(`{"spec":{"adopt":true}}`)); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if given, p := pass(); len(given) != 1 || len(p.Rollout.Taken) != 1 || p.Rollout.Taken[0] != given[0] {
			t.Errorf("with adopt: %q have it; %+v", given, p.Rollout)
		}
	}
}

// TestEventsAreNotJoined: events that differ in their texts are events of their own, however long they are; equal ones are
// one.
func TestEventsAreNotJoined(t *testing.T) {
	w := newPlane(t, 0)
	clients := w.nodes
	b := events.NewBroadcaster(&events.EventSinkImpl{Interface: clients.EventsV1()})
	defer b.Shutdown()
	if err := b.StartRecordingToSinkWithContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	k := w.kube()
	k.Events = b.NewRecorder(controlplane.Scheme(t), "pivot-fleet")
	p := w.fleet(&rollout.Kube{Cached: w.Client, Direct: w.Client, Now: time.Now}).Pools[0]
	for _, message := range []string{"n1 has failed", "n2 has failed", "n3 has failed: " + strings.Repeat("é", 900), "n1 has failed"} {
		if err := k.Record(t.Context(), p, rollout.Event{Reason: rollout.EventNodeFailed, Message: message, Warning: true}); err != nil {
			t.Fatal(err)
		}
	}
	var notes []string
	controlplane.Eventually(t, "three events", func(ctx context.Context) bool {
		list, err := clients.EventsV1().Events("").List(ctx, v1.ListOptions{})
		if err != nil {
			return false
		}
		notes = nil
		for _, e := range list.Items {
			if e.Reason == rollout.EventNodeFailed && e.Regarding.Name == "worker" {
				notes = append(notes, e.Note)
			}
		}
		return len(notes) >= 3
	})
	if len(notes) != 3 {
		t.Errorf("%d events: %q", len(notes), notes)
	}
}

// TestStaticPods: a node of the control plane serves only when its static pods are ready. So it keeps its slot, and the next
// one does not begin.
func TestStaticPods(t *testing.T) {
	w := newPlane(t, 0)
	w.ControlPlane.Apply(map[string]any{"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigPool", "metadata": map[string]any{"name": "master"},
		"spec": map[string]any{"nodeSelector": map[string]any{"matchLabels": map[string]string{role("control-plane"): ""}}, "configuration": map[string]any{"name": "rendered-worker-1"}}})
	w.ControlPlane.Apply(map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": "system"}})
	w.ControlPlane.Apply(map[string]any{"apiVersion": "v1", "kind": "ServiceAccount", "metadata": map[string]any{"name": "default", "namespace": "system"}})
	etcd := map[string]*corev1.Pod{}
	for _, name := range []string{"m0", "m1"} {
		w.join(name)
		if err := w.Patch(t.Context(), &corev1.Node{ObjectMeta: v1.ObjectMeta{Name: name}}, mergePatch(`{"metadata":{"labels":{"`+role("control-plane")+`":""}}}`)); err != nil {
			t.Fatal(err)
		}
		for _, pod := range []string{"etcd", "other"} {
			p := &corev1.Pod{ObjectMeta: v1.ObjectMeta{Name: pod + "-" + name, Namespace: "system"}, Spec: corev1.PodSpec{NodeName: name, Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
			if pod == "etcd" {
				p.Annotations, etcd[name] = map[string]string{corev1.MirrorPodAnnotationKey: "0"}, p
			}
			if err := w.Create(t.Context(), p); err != nil {
				t.Fatal(err)
			}
		}
	}
	ready := func(name string, status corev1.ConditionStatus) {
		t.Helper()
		etcd[name].Status.Phase = corev1.PodRunning
		etcd[name].Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: status}}
		if err := w.Client.Status().Update(t.Context(), etcd[name]); err != nil {
			t.Fatal(err)
		}
	}
	k := w.kube()
	k.Events = events.NewFakeRecorder(1000)
	controlplane.Eventually(t, "the rights", func(ctx context.Context) bool { _, err := k.Fleet(ctx); return err == nil })
	pass := func() api.PoolRolloutStatus {
		t.Helper()
		for range 2 {
			if _, err := (rollout.Controller{Cluster: k, Decide: rollout.Decide}).Pass(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		return w.fleet(k).Pools[0].Rollout
	}
	if s := pass(); s.Waiting != "waits until a MachineConfig is rendered for the pool" {
		t.Fatalf("%+v", s)
	}
	configure := func(config string) {
		t.Helper()
		if err := w.Patch(t.Context(), &api.MachineConfigPool{ObjectMeta: v1.ObjectMeta{Name: "master"}}, mergePatch(`{"spec":{"configuration":{"name":"`+config+`"}}}`)); err != nil {
			t.Fatal(err)
		}
	}
	ready("m0", corev1.ConditionTrue)
	ready("m1", corev1.ConditionTrue)
	configure("rendered-master-1")
	if s := pass(); len(s.Taken) != 1 || s.Taken[0] != "m0" {
		t.Fatalf("%+v", s)
	}
	if err := w.Patch(t.Context(), &corev1.Node{ObjectMeta: v1.ObjectMeta{Name: "m0"}}, mergePatch(`{"metadata":{"annotations":{"`+api.CurrentConfig+`":"rendered-master-1"}}}`)); err != nil {
		t.Fatal(err)
	}
	w.say(t.Context(), "m0", "rendered-master-1", nil)
	ready("m0", corev1.ConditionFalse)
	if s := pass(); len(s.Taken) != 1 || s.Taken[0] != "m0" || s.Waiting != "waits for m0, which has the static pod system/etcd-m0, which is not ready (at most 1 unavailable at a time)" {
		t.Errorf("%+v", s)
	}
	ready("m0", corev1.ConditionTrue)
	if s := pass(); len(s.Taken) != 1 || s.Taken[0] != "m1" {
		t.Errorf("%+v", s)
	}
}

func mergePatch(text string) client.Patch {
	return client.RawPatch("application/merge-patch+json", []byte(text))
}

// TestDeniedAtServer: somebody's policy denies the changes of a node. It is named in what its pool waits for, keeps its slot, and
// holds no other node.
func TestDeniedAtServer(t *testing.T) {
	w := newPlane(t, 2)
	for kind, spec := range map[string]any{
		"ValidatingAdmissionPolicy": map[string]any{
			"failurePolicy": "Fail",
			"matchConstraints": map[string]any{"resourceRules": []any{map[string]any{
				"apiGroups": []string{""}, "apiVersions": []string{"v1"}, "operations": []string{"UPDATE"}, "resources": []string{"nodes"}}}},
			"validations": []any{map[string]any{"expression": "object.metadata.name != 'n0' || request.userInfo.username != '" + account + "'", "message": "hands off"}},
		},
		"ValidatingAdmissionPolicyBinding": map[string]any{"policyName": "hands-off", "validationActions": []string{"Deny"}},
	} {
		w.ControlPlane.Apply(map[string]any{"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": map[string]any{"name": "hands-off"}, "spec": spec})
	}
	k := w.kube()
	k.Events = events.NewFakeRecorder(1000)
	controlplane.Eventually(t, "the policy", func(ctx context.Context) bool {
		f, err := k.Fleet(ctx)
		return err == nil && errors.Is(k.AskDownload(ctx, f.Nodes[0], "rendered-worker-1"), rollout.ErrRefused)
	})
	k = w.kube() // which knows nothing of that
	k.Events = events.NewFakeRecorder(1000)
	if err := w.Patch(t.Context(), &api.MachineConfigPool{ObjectMeta: v1.ObjectMeta{Name: "worker"}}, mergePatch(`{"spec":{"maxUnavailable":2,"configuration":{"name":"rendered-worker-2"}}}`)); err != nil {
		t.Fatal(err)
	}
	for range 4 {
		if _, err := (rollout.Controller{Cluster: k, Decide: rollout.Decide}).Pass(t.Context()); err != nil && !errors.Is(err, rollout.ErrRefused) {
			t.Fatal(err)
		}
	}
	f := w.fleet(k)
	if given := f.Nodes[1].Annotations[api.DesiredConfig]; given != "rendered-worker-2" {
		t.Errorf("n1 has %s", given)
	}
	if s := f.Pools[0].Rollout; len(s.Taken) != 2 || !strings.Contains(s.Waiting, "n0, which cannot be changed: ") || !strings.Contains(s.Waiting, "hands off") {
		t.Errorf("%+v", s)
	}
}
