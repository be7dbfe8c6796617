package fleet_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machine-pivot/internal/cluster/api"
	"machine-pivot/test/worlds/controlplane"
	"machine-pivot/test/worlds/fleet"
)

// TestFigures measures the acting controller's memory and processor time, for fleets each twice as large as the one
// before. It begins to change a tenth, and then continues as nodes are done.
func TestFigures(t *testing.T) {
	const limit = 150 // MB
	var before figures
	for _, nodes := range []int{1250, 2500, 5000} {
		t.Run(fmt.Sprintf("%d nodes", nodes), func(t *testing.T) {
			f := measure(t, nodes)
			t.Logf("%d nodes: peak memory %d MB; processor time until a tenth has slots %v, for %d changes of nodes after that %v",
				nodes, f.megabytes, f.begin, changes, f.goOn)
			if f.megabytes > limit {
				t.Errorf("the controller has used %d MB, want at most %d", f.megabytes, limit)
			}
			if before.nodes > 0 && (f.megabytes > 2*before.megabytes || f.begin > 4*before.begin) {
				t.Errorf("with twice as many nodes it is %+v instead of %+v", f, before)
			}
			before = f
		})
	}
}

// figures are those of a controller.
type figures struct {
	nodes, megabytes int           // the peak of its memory
	begin, goOn      time.Duration // processor time
}

// changes is how many nodes are done while figures.goOn is measured.
const changes = 100

func measure(t *testing.T, nodes int) figures {
	t.Helper()
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
	var rollout api.PoolRollout
	controlplane.Eventually(t, "a tenth of the nodes has slots", func(ctx context.Context) bool {
		return w.Get(ctx, client.ObjectKey{Name: "worker"}, &rollout) == nil && len(rollout.Status.Taken) == nodes/10 && w.pool(ctx).Status.MachineCount == int32(nodes)
	})
	begin := processorTime(t, r)
	for _, name := range rollout.Status.Taken[:changes] {
		all.Go(func() error { return w.obey(t.Context(), name) })
	}
	if err := all.Wait(); err != nil {
		t.Fatal(err)
	}
	controlplane.Eventually(t, "the controller has seen who is done", func(ctx context.Context) bool {
		return w.pool(ctx).Status.UpdatedMachineCount >= changes
	})
	megabytes, err := fleet.PeakMemory(r.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	return figures{nodes, megabytes, begin, processorTime(t, r) - begin}
}

func processorTime(t *testing.T, r *fleet.Replica) time.Duration {
	t.Helper()
	used, err := fleet.ProcessorTime(r.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	return used
}

// obey lets a node have what it is given, as soon as it is.
func (w *world) obey(ctx context.Context, name string) error {
	for ctx.Err() == nil {
		n := &corev1.Node{}
		if err := w.Get(ctx, client.ObjectKey{Name: name}, n); err != nil {
			return err
		}
		if desired := n.Annotations[api.DesiredConfig]; desired != n.Annotations[api.CurrentConfig] {
			return w.Patch(ctx, n, hasConfig(desired))
		}
		time.Sleep(100 * time.Millisecond)
	}
	return ctx.Err()
}
