package rollout_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	v1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machine-pivot/internal/cluster/api"
	"machine-pivot/test/worlds/controlplane"
)

// disturbed follows the nodes in the order of their changes, and keeps the most that had been given what they
// do not have.
func (w plane) disturbed() *atomic.Int32 {
	w.Helper()
	list, err := w.nodes.CoreV1().Nodes().List(w.Context(), v1.ListOptions{})
	if err != nil {
		w.Fatal(err)
	}
	changes, err := w.nodes.CoreV1().Nodes().Watch(w.Context(), v1.ListOptions{ResourceVersion: list.ResourceVersion})
	if err != nil {
		w.Fatal(err)
	}
	most, ended := &atomic.Int32{}, make(chan struct{})
	go func() {
		defer close(ended)
		now := map[string]bool{}
		for e := range changes.ResultChan() {
			n, ok := e.Object.(*corev1.Node)
			if !ok {
				continue
			}
			if delete(now, n.Name); e.Type != "DELETED" && n.Annotations[api.DesiredConfig] != n.Annotations[api.CurrentConfig] {
				now[n.Name] = true
			}
			most.Store(max(most.Load(), int32(len(now))))
		}
	}()
	w.Cleanup(func() { changes.Stop(); <-ended })
	return most
}

func (w plane) rollout(ctx context.Context) (r api.PoolRollout) {
	_ = w.Get(ctx, client.ObjectKey{Name: "worker"}, &r) // the caller looks again
	return r
}

func (w plane) delete(o client.Object) {
	w.Helper()
	if err := w.Delete(w.Context(), o); err != nil {
		w.Fatal(err)
	}
}

// pool applies the pool with a configuration.
func (w plane) pool(config string) {
	w.Helper()
	w.ControlPlane.Apply(map[string]any{"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigPool", "metadata": map[string]any{"name": "worker"},
		"spec": map[string]any{"nodeSelector": map[string]any{"matchLabels": map[string]string{role("worker"): ""}}, "maxUnavailable": 3,
			"configuration": map[string]any{"name": config}}})
}

// TestDeleted: a rollout continues, within its limit, after its PoolRollout, a node that is being changed, and its pool
// were deleted and made again meanwhile. The PoolRollout stays until its slots are given back.
func TestDeleted(t *testing.T) {
	const limit = 3
	w := newPlane(t, 6)
	most := w.disturbed()
	w.start()
	w.pool("rendered-worker-2")
	controlplane.Eventually(t, "all slots are taken", func(ctx context.Context) bool {
		return len(w.rollout(ctx).Status.Taken) == limit
	})
	controlplane.Eventually(t, "the nodes have what they are given", func(context.Context) bool { return most.Load() == limit })

	before := w.rollout(t.Context())
	w.delete(&before)
	controlplane.Eventually(t, "the PoolRollout says why it stays", func(ctx context.Context) bool {
		return strings.Contains(w.rollout(ctx).Status.Waiting, "waits until the nodes that have begun are done, to delete the PoolRollout: "+before.Status.Taken[0])
	})

	name := before.Status.Taken[0]
	w.delete(&corev1.Node{ObjectMeta: v1.ObjectMeta{Name: name}})
	w.join(name) // with another UID, and what it had before

	w.delete(&api.MachineConfigPool{ObjectMeta: v1.ObjectMeta{Name: "worker"}})
	w.pool("rendered-worker-2")

	w.obey()
	controlplane.Eventually(t, "each node has the configuration", func(ctx context.Context) bool {
		p, r := &api.MachineConfigPool{}, w.rollout(ctx)
		return w.Get(ctx, client.ObjectKey{Name: "worker"}, p) == nil && p.Status.UpdatedMachineCount == 6 && p.Status.MachineCount == 6 &&
			p.Status.Configuration.Name == "rendered-worker-2" && len(r.Status.Taken) == 0 && r.Status.Waiting == "" &&
			r.UID != before.UID && len(r.Finalizers) == 0
	})
	if most.Load() > limit {
		t.Errorf("%d nodes were changed at a time, want at most %d", most.Load(), limit)
	}
}

// TestUnknownFields: what the operator's own kind of pool has, and ours does not know, stays when the status is
// written.
func TestUnknownFields(t *testing.T) {
	w := newPlane(t, 1)
	preserve := `{"op":"add","path":"/spec/versions/0/schema/openAPIV3Schema/properties/%s/x-kubernetes-preserve-unknown-fields","value":true}`
	crd := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": "machineconfigpools.machineconfiguration.openshift.io"}}}
	patch := "[" + fmt.Sprintf(preserve, "spec") + "," + fmt.Sprintf(preserve, "status") + "]"
	if err := w.Patch(t.Context(), crd, client.RawPatch(types.JSONPatchType, []byte(patch))); err != nil {
		t.Fatal(err)
	}
	pool := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigPool",
		"metadata": map[string]any{"name": "worker"}}}
	spec := `{"spec":{"pinnedImageSets":[{"name":"p"}]}}`
	status := `{"status":{"certExpirys":[{"bundle":"b"}],"degradedMachineCount":7,"conditions":[` +
		`{"type":"PinnedImageSetsDegraded","status":"False","reason":"r","message":"","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}`
	has := func(path ...string) string {
		value, _, err := unstructured.NestedFieldNoCopy(pool.Object, path...)
		if err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	controlplane.Eventually(t, "the kind keeps fields that it does not know", func(ctx context.Context) bool {
		return w.Patch(ctx, pool, client.RawPatch(types.MergePatchType, []byte(spec))) == nil && has("spec", "pinnedImageSets") != "null" &&
			w.Client.Status().Patch(ctx, pool, client.RawPatch(types.MergePatchType, []byte(status))) == nil && has("status", "certExpirys") != "null"
	})
	before := map[string]string{"pinnedImageSets": has("spec", "pinnedImageSets"), "certExpirys": has("status", "certExpirys")}
	w.start()
	controlplane.Eventually(t, "the controller has written the status", func(ctx context.Context) bool {
		return w.Get(ctx, client.ObjectKey{Name: "worker"}, pool) == nil && has("status", "machineCount") == "1" && has("status", "degradedMachineCount") == "0"
	})
	after := map[string]string{"pinnedImageSets": has("spec", "pinnedImageSets"), "certExpirys": has("status", "certExpirys")}
	if fmt.Sprint(before) != fmt.Sprint(after) {
		t.Errorf("before: %v, after: %v", before, after)
	}
	var typed api.MachineConfigPool
	if err := w.Get(t.Context(), client.ObjectKey{Name: "worker"}, &typed); err != nil {
		t.Fatal(err)
	}
	types := map[string]bool{}
	for _, c := range typed.Status.Conditions {
		types[c.Type] = true
	}
	if !types["PinnedImageSetsDegraded"] || !types[api.PoolUpdated] {
		t.Errorf("the conditions are %v", typed.Status.Conditions)
	}
}
