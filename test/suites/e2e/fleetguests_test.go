package e2e_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"machine-pivot/internal/cluster/api"
	"machine-pivot/test/worlds/lab"
)

// TestFleetGuests (D131) is a fleet of three machines, with two replicas of the controller. The stories follow one another
// on the same machines. It is part of "make nightly".
func TestFleetGuests(t *testing.T) {
	w := newFleetWorld(t, nil, "n1", "n2", "n3")
	tell(t, w, []story[*fleetWorld]{
		{"the machines join", fleetJoins},
		{"a rollout under faults", fleetUnderFaults},
		{"an image that one node refuses", fleetStops},
	})
	if n := w.most.Load(); n != 1 {
		t.Errorf("up to %d nodes were out of service at a time, want 1", n)
	}
}

// fleetJoins: each machine has the MachineConfig that is rendered for the pool from its first boot, so no one
// reboots.
func fleetJoins(t *testing.T, w *fleetWorld) {
	first := w.pool().Spec.Configuration.Name
	for _, n := range w.nodes {
		n.powerOn(w.t)
	}
	w.until(t, "the nodes have joined", func() bool { return w.arrived(first) })
	w.expectBoots(t, 1, 1, 1)
}

// fleetUnderFaults: image, kernel argument, file and ContainerRuntimeConfig reach each node, although the controller
// that acts is killed while the first node is changed, the second node loses its power between its drain and its
// commit, and the third one its network.
func fleetUnderFaults(t *testing.T, w *fleetWorld) {
	c := changed(t, w.lab, "50-two", 1)
	leader := w.controller
	w.fleet.Start()
	target := w.together(t, 3, func() { w.create(t, c); w.createPids(2048) })
	one, two, three := w.nodes[0], w.nodes[1], w.nodes[2]

	w.until(t, "the first node is changed", func() bool { return w.works(one, target) })
	w.fleet.Kill(leader)
	w.until(t, "the first node has the target, without its controller", func() bool { return w.settled(one.name, target) })

	w.until(t, "the second node is empty", func() bool { return w.announces(two, target) })
	two.cutPower()
	if next := entry(t, two.machine); strings.Contains(next.Options, c.Kargs[0]) {
		t.Errorf("the power was cut after the commit: the next boot has the options %q", next.Options)
	}
	two.powerOn(w.t)
	w.until(t, "the second node has the target", func() bool { return w.settled(two.name, target) })

	w.until(t, "the third node is empty", func() bool { return w.announces(three, target) })
	three.gate.close(true)
	w.until(t, "the third node has the target, and cannot say so", func() bool {
		got, ok := three.shell.types(t, "cat "+nodeFile)
		return ok && got == c.Name
	})
	if w.settled(three.name, target) || w.arrived(target) {
		t.Error("the third node has arrived without its network")
	}
	three.gate.close(false)
	w.until(t, "all nodes have the target", func() bool { return w.arrived(target) })
	w.expectBoots(t, 2, 3, 2)
	for _, n := range w.nodes {
		w.expectHas(t, n, c, "1")
	}
}

// fleetStops: the first node accepts no image. No other node is begun, and the pool names it. When it is healed,
// the rollout goes on.
func fleetStops(t *testing.T, w *fleetWorld) {
	bad := w.nodes[0]
	before := w.pool().Spec.Configuration.Name
	const file = "/etc/containers/policy.json"
	w.until(t, "the node accepts no image", func() bool {
		got, ok := bad.shell.types(t, `mkdir -p /etc/containers; echo '{"default":[{"type":"reject"}]}' >`+file+" && echo written")
		return ok && got == "written"
	})
	c := changed(t, w.lab, "50-two", 2)
	target := w.together(t, 3, func() { w.create(t, c) })
	w.until(t, "the rollout stops", func() bool {
		return w.node(bad.name).Annotations[api.FailedConfig] == target && len(w.rollout().Status.Failed) == 1
	})
	if says := w.rollout().Status.Waiting; !strings.HasPrefix(says, "stopped: "+bad.name+" has failed with "+target) || !strings.Contains(says, file) {
		t.Errorf("the pool waits: %q", says)
	}
	if n := w.node(bad.name); n.Spec.Unschedulable || n.Annotations[api.StateOfNode] != api.StateDegraded {
		t.Errorf("the failed node: cordoned %v, %s", n.Spec.Unschedulable, n.Annotations[api.StateOfNode])
	}
	for _, n := range w.nodes[1:] {
		if got := w.node(n.name); got.Annotations[api.DesiredConfig] != before {
			t.Errorf("%s was given %s", n.name, got.Annotations[api.DesiredConfig])
		}
	}
	w.until(t, "the node is healed", func() bool {
		got, ok := bad.shell.types(t, "rm -f "+file+" && echo removed")
		return ok && got == "removed"
	})
	w.patchNode(t, bad.name, map[string]any{"metadata": map[string]any{"annotations": map[string]any{api.FailedConfig: nil}}})
	w.until(t, "all nodes have the target", func() bool { return w.arrived(target) })
	w.expectBoots(t, 3, 4, 3)
	for _, n := range w.nodes {
		w.expectHas(t, n, c, "2")
	}
}

// works reports whether a node is being changed.
func (w *fleetWorld) works(n *fleetNode, target string) bool {
	return w.is(n, func(o corev1.Node) bool { return o.Annotations[api.StateOfNode] == api.StateWorking }, target)
}

// announces reports whether a node is about to reboot: it is empty, and nothing is committed.
func (w *fleetWorld) announces(n *fleetNode, target string) bool {
	return w.is(n, func(o corev1.Node) bool { return o.Annotations[api.PostConfigAction] == api.ActionReboot }, target)
}

func (w *fleetWorld) is(n *fleetNode, holds func(corev1.Node) bool, target string) bool {
	o := w.node(n.name)
	return o.Annotations[api.DesiredConfig] == target && holds(o)
}

// expectBoots checks how often each machine has booted, in the order of the nodes.
func (w *fleetWorld) expectBoots(t *testing.T, want ...int) {
	t.Helper()
	for i, n := range w.nodes {
		if got := n.booted(); got != want[i] {
			t.Errorf("%s has booted %d times, want %d", n.name, got, want[i])
		}
	}
}

// expectHas checks that a machine has what a MachineConfig wants, a version of the image, and the limit of
// createPids.
func (w *fleetWorld) expectHas(t *testing.T, n *fleetNode, c lab.Config, version string) {
	t.Helper()
	want := strings.Join([]string{c.Kargs[0], c.Name, version, "pids_limit = 2048"}, "\n")
	got, ok := n.shell.types(t, "grep -o "+c.Kargs[0]+" /proc/cmdline; cat "+nodeFile+" /usr/share/openshift/metadata; grep -rho 'pids_limit = .*' /etc/crio")
	if got = strings.ReplaceAll(got, "\n\n", "\n"); !ok || got != want {
		t.Errorf("%s has %q (%v), want %q", n.name, got, ok, want)
	}
}
