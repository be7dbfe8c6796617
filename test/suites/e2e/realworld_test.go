package e2e_test

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes"

	"machine-pivot/internal/cluster/api"
	"machine-pivot/test/worlds/bootlab"
	"machine-pivot/test/worlds/controlplane"
	"machine-pivot/test/worlds/guest"
	"machine-pivot/test/worlds/kubenode"
	"machine-pivot/test/worlds/vm"
)

// realWorld is a cluster of machines with the real kubelet.
type realWorld struct {
	t      *testing.T
	lab    *bootlab.Lab
	plane  *controlplane.ControlPlane
	client kubernetes.Interface
	first  bootlab.Config // which each machine has from its first boot
	nodes  []*realNode
}

// realNode is one of its nodes.
type realNode struct {
	guest.Powered
	name    string
	address string // of its pods' services, on this host
	shell   guest.Shell
}

// realMemory is the memory of a node, in MiB: see docs/dev/testing.md.
const realMemory = 1536

// newRealWorld starts a cluster and makes its machines, which are off.
func newRealWorld(t *testing.T, names ...string) *realWorld {
	t.Helper()
	needMachines(t)
	guest := vm.GuestSpec{Suite: vm.Trixie}
	kubelet := controlplane.NeedProgram(t, controlplane.FormKubelet)
	l := newLab(t, guest, "build")
	plane := controlplane.StartFull(t)
	w := &realWorld{t: t, lab: l, plane: plane, client: plane.Client(plane.Admin()), first: nodeConfig("one")}
	images, err := kubenode.Images(t.Context(), "../../..", l.Bin(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	spec := kubenode.Spec{Guest: guest, Builder: vm.Builder{Log: os.Stderr}, Kubelet: kubelet, CA: plane.CA(), Images: images}
	for _, name := range names {
		w.nodes = append(w.nodes, w.newNode(t, name, spec))
	}
	return w
}

func (w *realWorld) newNode(t *testing.T, name string, spec kubenode.Spec) *realNode {
	t.Helper()
	config := w.plane.NodeUser(name)
	_, config.Host = w.plane.Address()
	spec.Kubeconfig = w.plane.Kubeconfig(config)
	files, err := kubenode.Files(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	n := &realNode{name: name, address: loopback(t), shell: guest.NewShell(t)}
	files = append(files,
		vm.TreeFile{Path: "/etc/hostname", Mode: 0o644, Content: []byte(name + "\n")},
		vm.TreeFile{Path: "/etc/systemd/journald.conf.d/test.conf", Mode: 0o644, Content: []byte("[Journal]\nForwardToConsole=yes\n")},
		vm.TreeFile{Path: nodeFile, Mode: 0o644, Content: []byte(w.first.Files[nodeFile])})
	files = append(files, n.shell.Files()...)
	n.Machine, err = w.lab.MachineWith(t.Context(), name, bootlab.Setup{
		Encapsulated: configJSON(t, w.first), Files: files,
	}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	n.Machine.MemoryMiB, n.Machine.Forward = realMemory, "tcp:"+n.address+":"+webPort+"-:"+webPort
	n.Rebooted = func() {}
	n.Idle = 15 * time.Minute // kubelet waits, and says nothing
	t.Cleanup(func() { n.explain(t) })
	return n
}

// explain keeps the console, after a failure.
func (n *realNode) explain(t *testing.T) {
	if !t.Failed() {
		return
	}
	file, err := n.KeepConsole()
	t.Logf("the console of %s is in %s (%v)", n.name, file, err)
}

// node reads a node. It is empty as long as there is none.
func (w *realWorld) node(name string) corev1.Node {
	n, err := w.client.CoreV1().Nodes().Get(w.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		return corev1.Node{}
	}
	return *n
}

// ready reports whether kubelet says that the node is ready.
func (w *realWorld) ready(name string) bool {
	for _, c := range w.node(name).Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// pods returns the pods with a label.
func (w *realWorld) pods(namespace, label string) []corev1.Pod {
	list, err := w.client.CoreV1().Pods(namespace).List(w.t.Context(), metav1.ListOptions{LabelSelector: label})
	if err != nil {
		return nil
	}
	return list.Items
}

// podsReady returns how many pods with a label are ready and stay.
func (w *realWorld) podsReady(namespace, label string) (n int) {
	for _, p := range w.pods(namespace, label) {
		for _, c := range p.Status.Conditions {
			if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue && p.DeletionTimestamp == nil {
				n++
			}
		}
	}
	return n
}

// read reads an object at a path of the API.
func (w *realWorld) read(path string, into any) error {
	data, err := w.client.CoreV1().RESTClient().Get().AbsPath(path).Do(w.t.Context()).Raw()
	if err != nil {
		return err
	}
	return json.Unmarshal(data, into)
}

// note sets an annotation of a node.
func (w *realWorld) note(t *testing.T, node, name, value string) {
	t.Helper()
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{name: value}}})
	if err == nil {
		_, err = w.client.CoreV1().Nodes().Patch(t.Context(), node, types.MergePatchType, body, metav1.PatchOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// hasSettled reports whether a node has a MachineConfig and serves.
func (w *realWorld) hasSettled(node, config string) bool {
	n := w.node(node)
	return n.Annotations[api.CurrentConfig] == config && n.Annotations[api.StateOfNode] == api.StateDone && !n.Spec.Unschedulable && w.ready(node)
}

// create creates a MachineConfig.
func (w *realWorld) create(t *testing.T, c bootlab.Config) {
	t.Helper()
	w.applyJSON(t, configJSON(t, c))
}

func (w *realWorld) applyJSON(t *testing.T, text []byte) {
	t.Helper()
	var object map[string]any
	if err := json.Unmarshal(text, &object); err != nil {
		t.Fatal(err)
	}
	w.plane.Apply(object)
}

// deployAgent does what "kubectl apply -k deploy/pod" does, with the test's image.
func (w *realWorld) deployAgent(t *testing.T) {
	t.Helper()
	const dir = "../../../deploy/"
	w.plane.Deploy(dir + "base")
	for _, name := range []string{"host", "pod", "by-name"} {
		w.plane.ApplyFile(dir + name + "/rbac.yaml")
	}
	text, err := os.ReadFile(dir + "pod/daemonset.yaml")
	if err != nil {
		t.Fatal(err)
	}
	text = bytes.Replace(text, []byte("image: pivot-agent\n"), []byte("image: "+kubenode.AgentImage+"\n"), 1)
	if text, err = yaml.ToJSON(text); err != nil {
		t.Fatal(err)
	}
	w.applyJSON(t, text)
}
