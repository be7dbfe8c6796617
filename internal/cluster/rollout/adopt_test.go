package rollout_test

import (
	"context"
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
