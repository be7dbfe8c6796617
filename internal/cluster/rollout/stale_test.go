package rollout_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machine-pivot/internal/cluster/api"
	"machine-pivot/internal/cluster/rollout"
	"machine-pivot/test/worlds/controlplane"
)

// snapshot is what a cache has of a fleet.
type snapshot struct {
	client.Reader
	nodes    corev1.NodeList
	systems  api.NodeSystemList
	pools    api.MachineConfigPoolList
	rollouts api.PoolRolloutList
}

func (w plane) snapshot() *snapshot {
	w.Helper()
	s := &snapshot{}
	for _, list := range []client.ObjectList{&s.nodes, &s.systems, &s.pools, &s.rollouts} {
		if err := w.List(w.Context(), list); err != nil {
			w.Fatal(err)
		}
	}
	return s
}

// List implements client.Reader.
func (s *snapshot) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	switch l := list.(type) {
	case *corev1.NodeList:
		*l = s.nodes
	case *api.NodeSystemList:
		*l = s.systems
	case *api.MachineConfigPoolList:
		*l = s.pools
	case *api.PoolRolloutList:
		*l = s.rollouts
	}
	return nil
}

// mixed returns the snapshots with some of its kinds of another one.
func (s *snapshot) mixed(old *snapshot, kinds int) *snapshot {
	out := *s
	if kinds&1 > 0 {
		out.nodes, out.systems = old.nodes, old.systems
	}
	if kinds&2 > 0 {
		out.pools = old.pools
	}
	if kinds&4 > 0 {
		out.rollouts = old.rollouts
	}
	return &out
}

// TestStale: during a rollout at a real API server, a second controller acts with caches that are some steps old, each
// kind of objects for itself. It changes nothing beyond the limit.
func TestStale(t *testing.T) {
	w := newPlane(t, 3)
	k := w.kube()
	controlplane.Eventually(t, "the rights", func(ctx context.Context) bool { _, err := k.Fleet(ctx); return err == nil })
	w.patch(&api.MachineConfigPool{}, "worker", `{"spec":{"maxUnavailable":1}}`)
	passes, conflicts := 0, 0
	pass := func(s *snapshot) {
		k.Cached = s
		_, err := rollout.Controller{Cluster: k, Decide: rollout.Decide}.Pass(t.Context())
		if passes++; errors.Is(err, rollout.ErrConflict) {
			conflicts++
		} else if err != nil {
			t.Fatal(err)
		}
		if n := w.changed(); len(n) > 1 {
			t.Fatalf("%q are changed at a time", n)
		}
	}
	k.Events = &events.FakeRecorder{}
	history := []*snapshot{w.snapshot()}
	for step := 0; step < 40 && (step < 4 || len(w.behind()) > 0); step++ {
		switch step {
		case 2:
			w.patch(&api.MachineConfigPool{}, "worker", `{"spec":{"configuration":{"name":"rendered-worker-2"}}}`)
		default: // who was given something has it two steps later
			for _, name := range w.changed() {
				if step%3 == 0 {
					w.patch(&corev1.Node{}, name, fmt.Sprintf(`{"metadata":{"annotations":{%q:"rendered-worker-2"}}}`, api.CurrentConfig))
					w.say(t.Context(), name, "rendered-worker-2", nil)
				}
			}
		}
		for _, ago := range []int{1, 3, 6} {
			old := history[max(len(history)-ago, 0)]
			for kinds := 1; kinds < 8; kinds++ {
				pass(w.snapshot().mixed(old, kinds))
			}
		}
		pass(w.snapshot())
		history = append(history, w.snapshot())
	}
	if left := w.behind(); len(left) > 0 || conflicts == 0 {
		t.Errorf("%q do not have the configuration; %d of %d passes had a conflict", left, conflicts, passes)
	}
	t.Logf("%d passes, %d with a conflict", passes, conflicts)
}

// changed returns the nodes that were given what they do not have.
func (w plane) changed() []string {
	return w.named(func(n *corev1.Node) bool { return n.Annotations[api.DesiredConfig] != n.Annotations[api.CurrentConfig] })
}

// behind returns the nodes without the second configuration.
func (w plane) behind() []string {
	return w.named(func(n *corev1.Node) bool { return n.Annotations[api.CurrentConfig] != "rendered-worker-2" })
}

func (w plane) named(which func(n *corev1.Node) bool) (names []string) {
	w.Helper()
	var list corev1.NodeList
	if err := w.List(w.Context(), &list); err != nil {
		w.Fatal(err)
	}
	for i := range list.Items {
		if which(&list.Items[i]) {
			names = append(names, list.Items[i].Name)
		}
	}
	return names
}

func (w plane) patch(o client.Object, name, body string) {
	w.Helper()
	o.SetName(name)
	if err := w.Patch(w.Context(), o, client.RawPatch(types.MergePatchType, []byte(body))); err != nil {
		w.Fatal(err)
	}
}
