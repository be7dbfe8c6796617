package guestfleet

import (
	"context"
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machine-pivot/internal/cluster/api"
	"machine-pivot/test/worlds/bootlab"
	"machine-pivot/test/worlds/controlplane"
	"machine-pivot/test/worlds/testenv"
)

// Pool is the pool of all nodes.
const Pool = "worker"

// role is the label by which the pool selects its MachineConfigs.
const role = "machineconfiguration.openshift.io/role"

// Apply creates a MachineConfig of the pool, or replaces it.
func (w *World) Apply(c bootlab.Config) {
	w.t.Helper()
	text, err := c.JSON()
	var object map[string]any
	if err == nil {
		err = json.Unmarshal(text, &object)
	}
	if err != nil {
		w.t.Fatal(err)
	}
	object["metadata"].(map[string]any)["labels"] = map[string]any{role: Pool}
	w.Plane.Apply(object)
}

// ApplyContainerRuntime creates a ContainerRuntimeConfig of the pool, or replaces it.
func (w *World) ApplyContainerRuntime(name string, settings map[string]any) {
	w.t.Helper()
	w.Plane.Apply(map[string]any{"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "ContainerRuntimeConfig",
		"metadata": map[string]any{"name": name}, "spec": map[string]any{
			"machineConfigPoolSelector": map[string]any{"matchLabels": map[string]any{"pool": Pool}}, "containerRuntimeConfig": settings}})
}

const workers = "node-role.kubernetes.io/worker"

func (w *World) applyPool() {
	w.Plane.Apply(map[string]any{"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigPool",
		"metadata": map[string]any{"name": Pool, "labels": map[string]any{"pool": Pool}}, "spec": map[string]any{
			"nodeSelector":          map[string]any{"matchLabels": map[string]any{workers: ""}},
			"machineConfigSelector": map[string]any{"matchLabels": map[string]any{role: Pool}},
		}})
}

// rendered returns the MachineConfig of the pool, as the Ignition endpoint gives it to a new machine.
func (w *World) rendered(t testenv.T) []byte {
	t.Helper()
	var config api.MachineConfig
	controlplane.Eventually(t, "the pool has a MachineConfig", func(ctx context.Context) bool {
		name := w.ReadPool(ctx).Spec.Configuration.Name
		return name != "" && w.Get(ctx, client.ObjectKey{Name: name}, &config) == nil
	})
	config.ManagedFields = nil
	text, err := json.Marshal(&config)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// ReadPool reads the pool; it is empty if it cannot be read, and the caller looks again.
func (w *World) ReadPool(ctx context.Context) *api.MachineConfigPool {
	var p api.MachineConfigPool
	_ = w.Get(ctx, client.ObjectKey{Name: Pool}, &p)
	return &p
}

// Waiting returns what the rollout waits for, in a sentence.
func (w *World) Waiting(ctx context.Context) string {
	var r api.PoolRollout
	_ = w.Get(ctx, client.ObjectKey{Name: Pool}, &r) // the caller looks again
	return r.Status.Waiting
}

// Arrived reports whether all nodes have the pool's MachineConfig, and the pool has another one than before.
func (w *World) Arrived(ctx context.Context, before string) bool {
	p := w.ReadPool(ctx)
	name := p.Spec.Configuration.Name
	return name != "" && name != before && p.Status.Configuration.Name == name && p.Status.ObservedGeneration == p.Generation &&
		int(p.Status.MachineCount) == len(w.Nodes) && int(p.Status.UpdatedMachineCount) == len(w.Nodes) && p.Status.UnavailableMachineCount == 0
}

// Adopt has the nodes of the pool taken in that were never given a configuration.
func (w *World) Adopt() {
	w.t.Helper()
	w.Plane.Apply(map[string]any{"apiVersion": "machine-pivot.io/v1alpha1", "kind": "PoolRollout",
		"metadata": map[string]any{"name": Pool}, "spec": map[string]any{"adopt": true}})
}

// Pause stops the rollout, or lets it go on.
func (w *World) Pause(ctx context.Context, paused bool) error {
	pool := &api.MachineConfigPool{}
	pool.Name = Pool
	return w.Patch(ctx, pool, client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec":{"paused":%v}}`, paused)))
}
