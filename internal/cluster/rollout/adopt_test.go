package rollout_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	v1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machine-pivot/internal/cluster/api"
	"machine-pivot/internal/cluster/objects"
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
	one := &objects.MachineConfigPool{ObjectMeta: v1.ObjectMeta{Name: "worker"}}
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
	if err := w.Patch(t.Context(), &objects.PoolRollout{ObjectMeta: v1.ObjectMeta{Name: "worker"}}, mergePatch(`{"spec":{"adopt":true}}`)); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if given, p := pass(); len(given) != 1 || len(p.Rollout.Taken) != 1 || p.Rollout.Taken[0] != given[0] {
			t.Errorf("with adopt: %q have it; %+v", given, p.Rollout)
		}
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
		return err == nil && errors.Is(k.Ask(ctx, f.Nodes[0], "rendered-worker-1"), rollout.ErrRefused)
	})
	k = w.kube() // which knows nothing of that
	k.Events = events.NewFakeRecorder(1000)
	if err := w.Patch(t.Context(), &objects.MachineConfigPool{ObjectMeta: v1.ObjectMeta{Name: "worker"}}, mergePatch(`{"spec":{"maxUnavailable":2,"configuration":{"name":"rendered-worker-2"}}}`)); err != nil {
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
