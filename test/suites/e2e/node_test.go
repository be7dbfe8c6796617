package e2e_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"machine-pivot/internal/cluster/api"
	"machine-pivot/test/worlds/bootlab"
)

// TestNode is a machine of a cluster: the real agent as its unit, real pivot and systemd, and the real API
// server on the host. The stories follow one another on the same machine. It is part of "make nightly".
func TestNode(t *testing.T) {
	w := newNodeWorld(t, nodeConfig("one"))
	w.PowerOn(t)
	tell(t, w, []story[*nodeWorld]{
		{"it joins", joins},
		{"a rollout", rollout},
		{"the API server stops", serverStops},
		{"a bad image, and another mind", changesItsMind},
		{"drift", driftsAndReturns},
		{"power cuts in a rollout", nodePowerCuts},
		{"a bad proof", badProof},
		{"recovering by hand", recoversByHand},
	})
}

// story is a part of what happens to a world.
type story[W any] struct {
	name string
	run  func(*testing.T, W)
}

// tell runs stories that follow one another, until one fails.
func tell[W any](t *testing.T, w W, stories []story[W]) {
	for _, s := range stories {
		if !t.Run(s.name, func(t *testing.T) { s.run(t, w) }) {
			return
		}
	}
}

// nodeFile is a file that all MachineConfigs of the node have, with their name.
const nodeFile = "/etc/node/file"

// nodeConfig returns a MachineConfig without an image and without kernel arguments.
func nodeConfig(name string) bootlab.Config {
	return bootlab.Config{Name: name, Files: map[string]string{nodeFile: name + "\n"}}
}

// changed returns a MachineConfig with a kernel argument of its own, and with a version of the image.
func changed(t *testing.T, l *bootlab.Lab, name string, version int) bootlab.Config {
	t.Helper()
	img, err := l.DerivedVersion(t.Context(), version)
	if err != nil {
		t.Fatal(err)
	}
	c := nodeConfig(name)
	c.Image, c.Kargs = img.Reference, []string{"node." + name}
	return c
}

// joins: after a first boot by pivot, the machine's agent reports that the node has its MachineConfig.
func joins(t *testing.T, w *nodeWorld) {
	w.Until(t, "the node has what its first boot gave to it", func() bool { return w.hasSettled("one") })
	s := w.system(t)
	if s.Config != (api.ConfigNames{Current: "one", Desired: "one"}) || s.Booted == nil || s.Booted.Commit != w.lab.Guest.CommitA || s.Pending != nil ||
		s.Proof == nil || !s.Proof.OK || len(s.KernelArguments.Missing)+len(s.KernelArguments.Excess) > 0 || s.AgentVersion != s.PivotVersion {
		t.Errorf("NodeSystem %+v", s)
	}
	if got := w.conditions(); got["Updated"] != api.True || got["NodeDegraded"] != api.False {
		t.Errorf("conditions %v", got)
	}
	if n := w.Booted(); n != 1 {
		t.Errorf("%d boots, want 1", n)
	}
}

// rollout: image, kernel argument and file, with a pod that a budget protects. The node is cordoned only when
// everything is downloaded, and the pod may go; it gets one reboot, when it is empty.
func rollout(t *testing.T, w *nodeWorld) {
	boots := w.Booted()
	w.protectedPod(t)
	w.kubelet.Hold(true)
	two := changed(t, w.lab, "two", 1)
	w.want(t, two)
	w.Until(t, "the agent names the budget", func() bool { return strings.Contains(w.node().Annotations[api.Reason], budgetName) })
	requests := w.lab.Registry.Requests()
	if n := w.node(); !n.Spec.Unschedulable || n.Annotations[api.StateOfNode] != api.StateWorking {
		t.Errorf("a node whose drain waits: %+v", n)
	}
	w.allowEviction(t)
	w.Until(t, "the node is cordoned, and waits for the end of the pod", func() bool {
		got := w.conditions()
		return w.node().Spec.Unschedulable && got["UpdatePrepared"] == api.True && got["Drained"] == api.Unknown && got["AppliedFilesAndOS"] == api.False
	})
	w.kubelet.Hold(false)
	w.Until(t, "the agent announces a reboot", func() bool { return w.has(api.PostConfigAction, api.ActionReboot) })
	w.Until(t, "the machine reboots", func() bool { return w.Booted() > boots })
	if got := w.conditions(); got["Drained"] != api.True || got["AppliedFilesAndOS"] != api.Unknown || got["NodeDegraded"] != api.False || got["Updated"] != api.False {
		t.Errorf("conditions while the node reboots: %v", got)
	}
	w.Until(t, "the node has two", func() bool { return w.hasSettled("two") })
	w.expectRolledOut(t, two, boots+1)
	if n := w.lab.Registry.Requests(); n != requests {
		t.Errorf("%d requests to the registry after the download", n-requests)
	}
	w.waitForEvent(t, api.EventDone)
	want := []string{
		api.EventUpdateStarted, api.EventDownloaded, api.EventDrainRehearsed, api.EventCordon,
		api.EventFailedToDrain, api.EventDrain, api.EventReboot, api.EventUncordon, api.EventDone,
	}
	if got := w.events(t); !slices.Equal(got, want) {
		t.Errorf("events %q, want %q", got, want)
	}
}

// budgetName is the name of a budget that protects a pod of the node.
const budgetName = "as-many-as-there-are"

// expectRolledOut checks that the machine runs what a MachineConfig wants, after a number of boots, and that
// nothing of the rollout is left on the node.
func (w *nodeWorld) expectRolledOut(t *testing.T, c bootlab.Config, boots int) {
	t.Helper()
	s := w.system(t)
	if s.Config != (api.ConfigNames{Current: c.Name, Desired: c.Name}) || s.Booted == nil || s.Booted.Image != c.Image || s.Pending != nil || s.Failure != "" ||
		s.Proof == nil || !s.Proof.OK {
		t.Errorf("NodeSystem %+v, booted %+v", s, s.Booted)
	}
	if got := w.conditions(); got["Updated"] != api.True || slices.Contains(slices.Collect(maps.Values(with(got, "Updated", ""))), api.True) {
		t.Errorf("conditions %v, want that only Updated is true", got)
	}
	notes := w.node().Annotations
	for _, name := range []string{api.Reason, api.PostConfigAction, api.CordonedFor, api.DrainStarted, api.DrainBlocked, api.FailedConfig} {
		if notes[name] != "" {
			t.Errorf("annotation %s is %q", name, notes[name])
		}
	}
	if n := w.Booted(); n != boots {
		t.Errorf("%d boots, want %d", n, boots)
	}
	want := strings.Join(c.Kargs, " ") + " " + c.Name
	if got, ok := w.shell.Types(t, "echo $(tr ' ' '\\n' </proc/cmdline | grep ^node) $(cat "+nodeFile+")"); !ok || got != want {
		t.Errorf("the machine has %q (%v), want %q", got, ok, want)
	}
}

// protectedPod runs a pod on the node that no eviction may remove.
func (w *nodeWorld) protectedPod(t *testing.T) {
	t.Helper()
	labels := map[string]string{"app": "web"}
	pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Labels: labels},
		Spec: corev1.PodSpec{NodeName: nodeName, Containers: []corev1.Container{{Name: "web", Image: "web"}}}}
	if _, err := w.client.CoreV1().Pods("default").Create(t.Context(), &pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	one := intstr.FromInt32(1)
	budget := policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: budgetName},
		Spec: policyv1.PodDisruptionBudgetSpec{MinAvailable: &one, Selector: &metav1.LabelSelector{MatchLabels: labels}}}
	if _, err := w.client.PolicyV1().PodDisruptionBudgets("default").Create(t.Context(), &budget, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// allowEviction ends the protection of the pod.
func (w *nodeWorld) allowEviction(t *testing.T) {
	t.Helper()
	if pods, err := w.client.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{}); err != nil || len(pods.Items) != 1 {
		t.Errorf("the protected pod is gone: %v", err)
	}
	if err := w.client.PolicyV1().PodDisruptionBudgets("default").Delete(t.Context(), budgetName, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}
