package fleet_test

import (
	"context"
	"fmt"
	"testing"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machine-pivot/internal/cluster/objects"
	"machine-pivot/test/worlds/controlplane"
	"machine-pivot/test/worlds/fleet"
)

// TestFigures measures the memory of the controller that acts, with many nodes of which it has begun to change a
// tenth.
func TestFigures(t *testing.T) {
	const nodes, limit = 5000, 150
	w := newWorld(t, 0)
	var all errgroup.Group
	all.SetLimit(20)
	for i := range nodes {
		all.Go(func() error { w.join(fmt.Sprintf("m%d", i)); return nil })
	}
	if err := all.Wait(); err != nil {
		t.Fatal(err)
	}
	r := w.fleet.Start()
	w.plane.Apply(machineConfig("00-worker", "one"))
	w.plane.Apply(map[string]any{"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigPool",
		"metadata": map[string]any{"name": "worker"}, "spec": map[string]any{
			"maxUnavailable":        intstr.FromString("10%"),
			"nodeSelector":          map[string]any{"matchLabels": map[string]string{workers: ""}},
			"machineConfigSelector": map[string]any{"matchLabels": map[string]string{role: "worker"}}}})
	controlplane.Eventually(t, "a tenth of the nodes has slots", func(ctx context.Context) bool {
		var rollout objects.PoolRollout
		return w.Get(ctx, client.ObjectKey{Name: "worker"}, &rollout) == nil && len(rollout.Status.Taken) == nodes/10 && w.pool(ctx).Status.MachineCount == nodes
	})
	megabytes, err := fleet.PeakMemory(r.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d nodes: peak memory %d MB", nodes, megabytes)
	if megabytes > limit {
		t.Errorf("the controller has used %d MB, want at most %d", megabytes, limit)
	}
}
