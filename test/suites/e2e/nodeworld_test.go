package e2e_test

import (
	"encoding/json"
	"os"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"machine-pivot/internal/cluster/api"
	"machine-pivot/test/worlds/bootlab"
	"machine-pivot/test/worlds/controlplane"
	"machine-pivot/test/worlds/guest"
	"machine-pivot/test/worlds/vm"
)

// nodeName is the name of the node, and of its host.
const nodeName = "n1"

// nodeWorld is a cluster with one node: a machine with an agent as a unit, with kubelet's credentials.
type nodeWorld struct {
	guest.Powered
	t       *testing.T
	lab     *bootlab.Lab
	plane   *controlplane.ControlPlane
	client  kubernetes.Interface
	kubelet *controlplane.Kubelet
	shell   guest.Shell
	since   int         // resource version: earlier events do not count
	byHand  atomic.Bool // somebody reboots the machine, and no agent has drained it
}

// newNodeWorld starts a cluster and makes its machine, which is off. The machine has the first MachineConfig,
// as its first boot leaves it.
func newNodeWorld(t *testing.T, first bootlab.Config) *nodeWorld {
	t.Helper()
	needMachines(t)
	l, err := bootlab.NewOf(t.Context(), "../../..", vm.GuestSpec{Suite: vm.Trixie}, os.Stderr, "build", "install-agent") // its libostree supports "pivot rollback"
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	plane := controlplane.Start(t)
	w := &nodeWorld{t: t, lab: l, plane: plane, client: plane.Client(plane.Admin()), shell: guest.NewShell(t)}
	plane.Deploy("../../../deploy/host")
	plane.Deploy("../../../deploy/by-name")
	w.kubelet = plane.Kubelet(t, nodeName)
	w.create(first)
	w.note(t, api.DesiredConfig, first.Name)
	w.Machine, err = l.MachineWith(t.Context(), nodeName, bootlab.Setup{Encapsulated: configJSON(t, first), Files: w.files(t, first)}, testLog{t})
	if err != nil {
		t.Fatal(err)
	}
	w.Rebooted = w.checkReboot
	t.Cleanup(func() { w.explain(t) })
	return w
}

// files returns the files with which the machine joins the cluster.
func (w *nodeWorld) files(t *testing.T, first bootlab.Config) []vm.TreeFile {
	_, server := w.plane.Address()
	return append(guest.AgentFiles(w.plane, nodeName, server, first), w.shell.Files()...)
}

func configJSON(t *testing.T, c bootlab.Config) []byte {
	t.Helper()
	data, err := c.JSON()
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// create creates a MachineConfig in the cluster.
func (w *nodeWorld) create(c bootlab.Config) {
	var object map[string]any
	if err := json.Unmarshal(configJSON(w.t, c), &object); err != nil {
		w.t.Fatal(err)
	}
	w.plane.Apply(object)
}

// want names another MachineConfig as the desired one, which is created before. Events from now on count.
func (w *nodeWorld) want(t *testing.T, c bootlab.Config) {
	t.Helper()
	w.create(c)
	w.eventsFromNow(t)
	w.note(t, api.DesiredConfig, c.Name)
}

// eventsFromNow forgets the events so far.
func (w *nodeWorld) eventsFromNow(t *testing.T) {
	t.Helper()
	events, err := w.client.CoreV1().Events("default").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if w.since, err = strconv.Atoi(events.ResourceVersion); err != nil {
		t.Fatal(err)
	}
}

// note sets an annotation of the node.
func (w *nodeWorld) note(t *testing.T, name, value string) {
	t.Helper()
	patchNode(t, w.client, map[string]any{"metadata": map[string]any{"annotations": map[string]string{name: value}}})
}

func patchNode(t *testing.T, client kubernetes.Interface, patch any) {
	t.Helper()
	body, err := json.Marshal(patch)
	if err == nil {
		_, err = client.CoreV1().Nodes().Patch(t.Context(), nodeName, types.MergePatchType, body, metav1.PatchOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// node reads the node. It is empty while the API server does not answer.
func (w *nodeWorld) node() corev1.Node {
	n, err := w.client.CoreV1().Nodes().Get(w.t.Context(), nodeName, metav1.GetOptions{})
	if err != nil {
		return corev1.Node{}
	}
	return *n
}

// has reports whether an annotation of the node has a value.
func (w *nodeWorld) has(name, value string) bool { return w.node().Annotations[name] == value }

// hasSettled reports whether the node has a MachineConfig and serves, and its objects say so.
func (w *nodeWorld) hasSettled(config string) bool {
	n := w.node()
	return n.Annotations[api.CurrentConfig] == config && n.Annotations[api.StateOfNode] == api.StateDone && !n.Spec.Unschedulable &&
		w.conditions()["Updated"] == api.True
}

// read reads an object of the node below a path of the API.
func (w *nodeWorld) read(path string, into any) error {
	data, err := w.client.CoreV1().RESTClient().Get().AbsPath(path + "/" + nodeName).Do(w.t.Context()).Raw()
	if err != nil {
		return err
	}
	return json.Unmarshal(data, into)
}

// system reads the node's NodeSystem.
func (w *nodeWorld) system(t *testing.T) (s api.NodeSystemStatus) {
	t.Helper()
	object := struct{ Status *api.NodeSystemStatus }{&s}
	if err := w.read("/apis/machine-pivot.io/v1alpha1/nodesystems", &object); err != nil {
		t.Error(err)
	}
	return s
}

// conditions reads the conditions of the node's MachineConfigNode: their statuses, by type.
func (w *nodeWorld) conditions() map[string]string {
	var object struct{ Status api.MachineConfigNodeStatus }
	statuses := map[string]string{}
	if w.read("/apis/machineconfiguration.openshift.io/v1/machineconfignodes", &object) != nil {
		return statuses
	}
	for _, c := range object.Status.Conditions {
		statuses[c.Type] = string(c.Status)
	}
	return statuses
}

// events returns the node's events since the last want, in their order.
func (w *nodeWorld) events(t *testing.T) (reasons []string) {
	t.Helper()
	list, err := w.client.CoreV1().Events("default").List(t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.name=" + nodeName})
	if err != nil {
		t.Error(err)
		return nil
	}
	at := map[string]int{}
	for _, e := range list.Items {
		version, err := strconv.Atoi(e.ResourceVersion)
		if err != nil {
			t.Fatal(err)
		}
		if version > w.since {
			reasons = append(reasons, e.Reason)
			at[e.Reason] = version
		}
	}
	slices.SortFunc(reasons, func(a, b string) int { return at[a] - at[b] })
	return reasons
}

// waitForEvent waits for an event of the node since the last want: the agent records what has happened after the state
// that it leads to.
func (w *nodeWorld) waitForEvent(t *testing.T, reason string) {
	t.Helper()
	w.Until(t, "there is an event "+reason, func() bool { return slices.Contains(w.events(t), reason) })
}

// checkReboot checks, when the guest reboots, that the node was drained before.
func (w *nodeWorld) checkReboot() {
	if w.node().Name != "" && !w.byHand.Load() { // else the API server does not answer: a story checks it before it stops the server
		w.checkDrained()
	}
}

// checkDrained checks that the node is drained for what is desired.
func (w *nodeWorld) checkDrained() {
	n := w.node()
	if asked := api.DrainFor(n.Annotations[api.DesiredConfig]); !n.Spec.Unschedulable || n.Annotations[api.DesiredDrain] != asked || n.Annotations[api.LastAppliedDrain] != asked {
		w.t.Errorf("a reboot without a drain: %+v", n)
	}
	pods, err := w.client.CoreV1().Pods("default").List(w.t.Context(), metav1.ListOptions{})
	if err != nil || len(pods.Items) > 0 {
		w.t.Errorf("a reboot of a node with %d pods, %v", len(pods.Items), err)
	}
}

// explain says where the node stands, after a failure.
func (w *nodeWorld) explain(t *testing.T) {
	if !t.Failed() {
		return
	}
	file, err := w.KeepConsole()
	t.Logf("the console is in %s (%v)", file, err)
}
