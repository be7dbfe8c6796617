package e2e_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machine-pivot/internal/cluster/api"
	"machine-pivot/test/worlds/guestfleet"
	"machine-pivot/test/worlds/registry"
)

// fleetStory is one rollout over three machines of a pool, in which something happens on each of them.
type fleetStory struct {
	*guestfleet.World
	image string // that is rolled out
	begun []*guestfleet.Node
}

// TestFleetGuests rolls out an image, a kernel argument, a file and a ContainerRuntimeConfig over a pool of three
// machines, with real pivot, agents and controllers, and the real API server. The stories follow one another in that
// one rollout. It is part of "make nightly".
func TestFleetGuests(t *testing.T) {
	needMachines(t)
	w := &fleetStory{World: guestfleet.New(t, "../../..", guestfleet.Options{Nodes: []string{"n1", "n2", "n3"}, Base: nodeConfig("00-base")})}
	tell(t, w, []story[*fleetStory]{
		{"three machines join with the MachineConfig of their first boot", fleetJoins},
		{"a bad image on the first node stops the rollout", fleetStops},
		{"healed, it goes on, and the controller is killed in the middle", fleetLosesController},
		{"the second node is cut off while it reboots", fleetIsPartitioned},
		{"the power of the third node is cut between drain and commit", fleetPowerCut},
		{"all have arrived", fleetArrives},
	})
	if most := w.MostOut(); len(most) != 1 {
		t.Errorf("%q were out at a time, want one node", most)
	}
}

// fleetJoins: the machines reboot no second time.
func fleetJoins(t *testing.T, w *fleetStory) {
	w.Until(t, "the pool has arrived", func() bool { return w.Arrived(t.Context(), "") })
	for _, n := range w.Nodes {
		if n.Booted() != 1 {
			t.Errorf("%s: %d boots, want 1", n.Name, n.Booted())
		}
	}
}

// fleetArgument is the kernel argument that is rolled out.
const fleetArgument = "node.fleet"

// fleetStops: the registry lacks the image when the first node wants it. No other node begins, no node is cordoned,
// and the pool names the culprit.
func fleetStops(t *testing.T, w *fleetStory) {
	img, err := w.Lab.DerivedVersion(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	w.image = img.Reference
	w.Lab.Registry.Spoil(registry.Rule{On: "/os/derived/manifests/", Fault: registry.Status(http.StatusNotFound)})
	c := nodeConfig("50-fleet")
	c.Image, c.Kargs = w.image, []string{fleetArgument}
	w.mustPause(t, true) // so that both are one rollout
	w.Apply(c)
	w.ApplyContainerRuntime("pids", map[string]any{"pidsLimit": 4096})
	w.Until(t, "both are rendered", func() bool {
		source := w.ReadPool(t.Context()).Spec.Configuration.Source
		return slices.ContainsFunc(source, func(r api.ObjectReference) bool { return r.Name == "50-fleet" }) &&
			slices.ContainsFunc(source, func(r api.ObjectReference) bool { return strings.Contains(r.Name, "containerruntime") })
	})
	w.mustPause(t, false)
	w.Until(t, "the rollout stops", func() bool { return strings.HasPrefix(w.Waiting(t.Context()), "stopped: ") })
	first := w.next(t)
	waiting, p := w.Waiting(t.Context()), w.ReadPool(t.Context())
	if !strings.HasPrefix(waiting, "stopped: "+first.Name+" has failed with "+p.Spec.Configuration.Name+"; "+first.Name+": ") {
		t.Errorf("the pool waits: %q", waiting)
	}
	if !slices.ContainsFunc(p.Status.Conditions, func(c metav1.Condition) bool {
		return c.Type == api.PoolNodeDegraded && c.Status == api.True && strings.Contains(c.Message, first.Name)
	}) || p.Status.DegradedMachineCount != 1 {
		t.Errorf("the pool's status %+v", p.Status)
	}
	if got := w.Cordoned(); len(got) > 0 {
		t.Errorf("%q were cordoned for an image that cannot be had", got)
	}
}

func (w *fleetStory) mustPause(t *testing.T, paused bool) {
	t.Helper()
	if err := w.Pause(t.Context(), paused); err != nil {
		t.Fatal(err)
	}
}

// next waits until a node begins that has not begun before.
func (w *fleetStory) next(t *testing.T) *guestfleet.Node {
	t.Helper()
	var found *guestfleet.Node
	w.Until(t, "the next node begins", func() bool {
		target := w.ReadPool(t.Context()).Spec.Configuration.Name
		for _, n := range w.Nodes {
			if !slices.Contains(w.begun, n) && target != "" && w.Read(t.Context(), n).Annotations[api.DesiredConfig] == target {
				found = n
			}
		}
		return found != nil
	})
	w.begun = append(w.begun, found)
	return found
}

// has reports whether an annotation of a node has a value.
func (w *fleetStory) has(t *testing.T, n *guestfleet.Node, name, value string) bool {
	return w.Read(t.Context(), n).Annotations[name] == value
}

// fleetLosesController: the image is there, and the operator says so. The replica that acts is killed when the node is
// cordoned; the other one, which has to wait for the Lease, brings the rollout to the next node.
func fleetLosesController(t *testing.T, w *fleetStory) {
	first := w.begun[0]
	w.Fleet.Start()
	w.Lab.Registry.Spoil()
	again := []byte(`{"metadata":{"annotations":{"` + api.FailedConfig + `":null}}}`)
	if err := w.Patch(t.Context(), w.Read(t.Context(), first), client.RawPatch(types.MergePatchType, again)); err != nil {
		t.Fatal(err)
	}
	w.Until(t, first.Name+" is cordoned", func() bool { return w.Read(t.Context(), first).Spec.Unschedulable })
	w.Fleet.Kill(w.Controller)
	w.settles(t, first, 2)
}

// fleetIsPartitioned: from its reboot on, the node does not reach the API server. Its machine continues by itself; the
// rollout waits for what it cannot see, and names the node. (Before the commit, the agent of a node that is cut off
// waits, because the node could be uncordoned meanwhile.)
func fleetIsPartitioned(t *testing.T, w *fleetStory) {
	second := w.next(t)
	w.Until(t, second.Name+" reboots", func() bool { return second.Booted() > 1 })
	second.Link.Cut()
	w.Until(t, "the machine has the new system", func() bool {
		answer, ok := second.Types(t, "grep -o "+fleetArgument+" /proc/cmdline")
		return ok && answer == fleetArgument
	})
	if waiting := w.Waiting(t.Context()); !strings.Contains(waiting, second.Name) {
		t.Errorf("the pool waits: %q, want %s named", waiting, second.Name)
	}
	if n := w.Read(t.Context(), second); !n.Spec.Unschedulable || n.Annotations[api.StateOfNode] != api.StateWorking {
		t.Errorf("%s serves, though nobody has seen it: %v", second.Name, n.Annotations)
	}
	second.Link.Heal()
	w.settles(t, second, 2)
}

// fleetPowerCut: the node is drained, and nothing is committed yet. The machine boots its old system, and its agent
// makes the change again.
func fleetPowerCut(t *testing.T, w *fleetStory) {
	third := w.next(t)
	w.Until(t, third.Name+" announces its reboot", func() bool { return w.has(t, third, api.PostConfigAction, api.ActionReboot) })
	third.CutPower()
	if next := entry(t, third.Machine); strings.Contains(next.Options, fleetArgument) {
		t.Errorf("the power was cut after the commit: the next boot has the options %q", next.Options)
	}
	if n := w.Read(t.Context(), third); !n.Spec.Unschedulable {
		t.Errorf("%s reboots without a cordon: %v", third.Name, n.Annotations)
	}
	w.PowerOn(third)
	w.settles(t, third, 3)
}

// settles waits until a node serves with the pool's MachineConfig, and checks what its machine has, after a number
// of boots.
func (w *fleetStory) settles(t *testing.T, n *guestfleet.Node, boots int) {
	t.Helper()
	target := w.ReadPool(t.Context()).Spec.Configuration.Name
	w.Until(t, n.Name+" has the MachineConfig", func() bool {
		object := w.Read(t.Context(), n)
		return object.Annotations[api.CurrentConfig] == target && object.Annotations[api.StateOfNode] == api.StateDone && !object.Spec.Unschedulable
	})
	const look = "grep -o " + fleetArgument + " /proc/cmdline; cat " + nodeFile + "; grep -o pids_limit.* /etc/crio/crio.conf.d/01-ctrcfg-pidsLimit"
	var got string
	w.Until(t, "a shell on "+n.Name+" answers", func() (ok bool) { got, ok = n.Types(t, look); return ok })
	if want := fleetArgument + "\n50-fleet\npids_limit = 4096"; got != want {
		t.Errorf("%s has %q, want %q", n.Name, got, want)
	}
	if s := w.System(t.Context(), n); s.Booted == nil || s.Booted.Image != w.image || s.Proof == nil || !s.Proof.OK {
		t.Errorf("%s: NodeSystem %+v, booted %+v", n.Name, s, s.Booted)
	}
	if n.Booted() != boots {
		t.Errorf("%s: %d boots, want %d", n.Name, n.Booted(), boots)
	}
}

// fleetArrives: the pool is updated, and each node was cordoned once.
func fleetArrives(t *testing.T, w *fleetStory) {
	w.Until(t, "the pool has arrived", func() bool { return w.Arrived(t.Context(), "") })
	var want []string
	for _, n := range w.begun {
		want = append(want, n.Name)
	}
	if got := w.Cordoned(); !slices.Equal(got, want) {
		t.Errorf("cordoned %q, want %q", got, want)
	}
	p := w.ReadPool(t.Context())
	for _, c := range p.Status.Conditions {
		if want := c.Type == api.PoolUpdated; (c.Status == api.True) != want {
			t.Errorf("condition %+v", c)
		}
	}
	if waiting := w.Waiting(t.Context()); waiting != "" {
		t.Errorf("the pool waits: %q", waiting)
	}
}
