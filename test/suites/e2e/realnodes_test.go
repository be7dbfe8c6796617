package e2e_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machine-pivot/internal/cluster/api"
	"machine-pivot/test/worlds/bootlab"
	"machine-pivot/test/worlds/kubenode"
)

// TestRealNodes is a cluster of two machines that are nodes with the real kubelet, containerd and runc, and
// with the whole control plane on the host. The agent is a pod of its DaemonSet. The stories follow one
// another. It is part of "make nightly".
func TestRealNodes(t *testing.T) {
	w := newRealWorld(t, "n1", "n2")
	tell(t, w, []story[*realWorld]{
		{"a real kubelet joins", realJoins},
		{"the agent is a pod", agentIsPod},
		{"the pod rolls out an image and an argument", podRollsOut},
		{"two nodes serve through a rollout", servesThroughRollout},
	})
}

// ownNetwork is the label of a pod with a network of its own.
const ownNetwork = "app=own-network"

// realJoins: the machine boots, kubelet registers it, and a pod in a network of its own runs.
func realJoins(t *testing.T, w *realWorld) {
	n := w.nodes[0]
	n.PowerOn(w.t)
	n.Until(t, "the node is ready", func() bool { return w.ready(n.name) })
	pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "own-network", Labels: map[string]string{"app": "own-network"}},
		Spec: corev1.PodSpec{DNSPolicy: corev1.DNSDefault, Containers: []corev1.Container{{Name: "pod", Image: kubenode.PodImage, Command: []string{"/pod", "serve"}}}}}
	n.Until(t, "the namespace has its service account", func() bool {
		_, err := w.client.CoreV1().Pods("default").Create(t.Context(), &pod, metav1.CreateOptions{})
		return err == nil
	})
	n.Until(t, "the pod runs", func() bool { return w.podsReady("default", ownNetwork) == 1 })
	if p := w.pods("default", ownNetwork)[0]; !strings.HasPrefix(p.Status.PodIP, "10.85.0.") {
		t.Errorf("the pod has the address %q", p.Status.PodIP)
	}
	info := w.node(n.name).Status.NodeInfo
	t.Logf("kubelet %s, %s, kernel %s", info.KubeletVersion, info.ContainerRuntimeVersion, info.KernelVersion)
	w.logUse(t, n)
}

// agentIsPod: the pod of the DaemonSet finds the MachineConfig that the machine has from its first boot.
func agentIsPod(t *testing.T, w *realWorld) {
	n := w.nodes[0]
	w.deployAgent(t)
	w.create(t, w.first)
	w.note(t, n.name, api.DesiredConfig, w.first.Name)
	n.Until(t, "the agent's pod is ready", func() bool { return w.podsReady("pivot-agent", "app=pivot-agent") == 1 })
	n.Until(t, "the node has what its first boot gave to it", func() bool { return w.hasSettled(n.name, w.first.Name) })
	w.logUse(t, n)
}

// podRollsOut: pivot, which the pod runs through the host's systemd, gives the machine another image and an
// argument, in one reboot, after a drain. The pod itself is ready again after it.
func podRollsOut(t *testing.T, w *realWorld) {
	n := w.nodes[0]
	boots := n.Booted()
	two := changed(t, w.lab, "two", 1)
	w.create(t, two)
	w.note(t, n.name, api.DesiredConfig, two.Name)
	n.Until(t, "the machine reboots", func() bool { return n.Booted() > boots })
	if left := w.pods("default", ownNetwork); len(left) != 0 {
		t.Errorf("a reboot of a node with the pod %s", left[0].Name)
	}
	n.Until(t, "the node has two", func() bool { return w.hasSettled(n.name, two.Name) })
	w.expectRolledOut(t, n, two, boots+1)
	n.Until(t, "the agent's pod is ready", func() bool { return w.podsReady("pivot-agent", "app=pivot-agent") == 1 })
}

// servesThroughRollout: a Deployment of two replicas with a budget, and a client outside that chooses
// among the ready endpoints. Image and argument are rolled out over both nodes, one at a time.
func servesThroughRollout(t *testing.T, w *realWorld) {
	second := w.nodes[1]
	second.PowerOn(w.t)
	second.Until(t, "the second node is ready", func() bool { return w.ready(second.name) })
	w.note(t, second.name, api.DesiredConfig, w.first.Name)
	second.Until(t, "the second node has what its first boot gave to it", func() bool { return w.hasSettled(second.name, w.first.Name) })
	w.plane.ApplyFile("testdata/web.yaml")
	second.Until(t, "both replicas are ready", func() bool { return w.podsReady("default", "app=web") == 2 })
	client := webClient{client: w.client, addresses: map[string]string{}}
	for _, n := range w.nodes {
		client.addresses[n.name] = n.address
	}
	stop := client.start()
	defer func() {
		stop()
		for _, failure := range client.failures {
			t.Errorf("a request failed: %s", failure)
		}
		t.Logf("answers %v, %d failed requests", client.answers, len(client.failures))
	}()
	three := changed(t, w.lab, "three", 2)
	w.create(t, three)
	for _, n := range w.nodes {
		w.rollOut(t, n, three, &client)
	}
}

// rollOut gives a node a MachineConfig, and waits until it serves again. Before and after, it answers the
// client.
func (w *realWorld) rollOut(t *testing.T, n *realNode, c bootlab.Config, client *webClient) {
	t.Helper()
	boots, before := n.Booted(), client.answered(n.name)
	n.Until(t, n.name+" answers the client", func() bool { return client.answered(n.name) > before })
	w.note(t, n.name, api.DesiredConfig, c.Name)
	n.Until(t, n.name+" reboots", func() bool { return n.Booted() > boots })
	if nodes, err := readyNodes(t.Context(), w.client); err != nil || len(nodes) != 1 || nodes[0] == n.name {
		t.Errorf("at the reboot of %s, the ready endpoints are on %q, %v", n.name, nodes, err)
	}
	n.Until(t, n.name+" has "+c.Name, func() bool { return w.hasSettled(n.name, c.Name) })
	w.expectRolledOut(t, n, c, boots+1)
	n.Until(t, "both replicas are ready", func() bool { return w.podsReady("default", "app=web") == 2 })
	before = client.answered(n.name)
	n.Until(t, n.name+" answers the client again", func() bool { return client.answered(n.name) > before })
}

// expectRolledOut checks that a machine runs what a MachineConfig wants, after a number of boots.
func (w *realWorld) expectRolledOut(t *testing.T, n *realNode, c bootlab.Config, boots int) {
	t.Helper()
	if got := n.Booted(); got != boots {
		t.Errorf("%s: %d boots, want %d", n.name, got, boots)
	}
	if got := w.node(n.name); got.Spec.Unschedulable || got.Annotations[api.Reason] != "" || got.Annotations[api.CordonedFor] != "" {
		t.Errorf("%s is left with %v", n.name, got.Annotations)
	}
	want := strings.Join(c.Kargs, " ") + " " + c.Name
	got := ""
	n.Until(t, "a shell of "+n.name+" answers", func() (ok bool) {
		got, ok = n.shell.Types(t, "echo $(tr ' ' '\\n' </proc/cmdline | grep ^node) $(cat "+nodeFile+")")
		return ok
	})
	if got != want {
		t.Errorf("%s has %q, want %q", n.name, got, want)
	}
	var object struct{ Status api.NodeSystemStatus }
	if err := w.read("/apis/machine-pivot.io/v1alpha1/nodesystems/"+n.name, &object); err != nil {
		t.Fatal(err)
	}
	if s := object.Status; s.Booted == nil || s.Booted.Image != c.Image || s.Proof == nil || !s.Proof.OK {
		t.Errorf("%s: NodeSystem %+v, booted %+v", n.name, s, s.Booted)
	}
}

// logUse logs what memory and processor time a node uses.
func (w *realWorld) logUse(t *testing.T, n *realNode) {
	t.Helper()
	out, ok := n.shell.Types(t, "grep -E 'MemTotal|MemAvailable' /proc/meminfo; cut -d' ' -f1 /proc/uptime; du -sm /var/lib/containerd; "+
		"for p in /proc/[0-9]*; do echo $(grep VmRSS $p/status) $(cut -d' ' -f14,15 $p/stat) $(cat $p/comm); done 2>/dev/null | grep ^VmRSS | sort -rnk2 | head -9")
	t.Logf("%s uses (%v):\n%s", n.name, ok, out)
}
