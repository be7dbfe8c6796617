package guestfleet

import (
	"context"
	"fmt"
	"io"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machine-pivot/internal/cluster/api"
	"machine-pivot/test/worlds/bootlab"
	"machine-pivot/test/worlds/guest"
	"machine-pivot/test/worlds/testenv"
)

// Node is a machine of the cluster.
type Node struct {
	guest.Powered
	guest.Shell
	Name string
	Link *Link
}

// join registers a node, and makes its machine as Ignition leaves it with the pool's MachineConfig.
func (w *World) join(t testenv.T, name string, first []byte, o Options) *Node {
	t.Helper()
	n := &Node{Name: name, Shell: guest.NewShell(t)}
	w.Plane.Kubelet(t, name)
	// Kubelet may not give itself this label.
	label := fmt.Appendf(nil, `{"metadata":{"labels":{%q:""}}}`, workers)
	if err := w.Patch(t.Context(), w.object(name), client.RawPatch(types.MergePatchType, label)); err != nil {
		t.Fatal(err)
	}
	server, _ := w.Plane.Address()
	n.Link = newLink(t, strings.TrimPrefix(server, "https://"))
	files := append(guest.AgentFiles(w.Plane, name, n.Link.url(), o.Base), n.Files()...)
	files = append(files, o.Files...)
	var err error
	n.Machine, err = w.Lab.MachineWith(t.Context(), name, bootlab.Setup{Image: o.Base.Image, Encapsulated: first, Files: files}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	n.Rebooted, n.Idle = func() {}, idle
	t.Cleanup(func() {
		if t.Failed() {
			file, err := n.KeepConsole()
			t.Logf("the console of %s is in %s (%v)", name, file, err)
		}
	})
	return n
}

func (w *World) object(name string) *corev1.Node {
	n := &corev1.Node{}
	n.Name = name
	return n
}

// Read reads a node; it is empty if it cannot be read, and the caller looks again.
func (w *World) Read(ctx context.Context, n *Node) *corev1.Node {
	object := w.object(n.Name)
	_ = w.Get(ctx, client.ObjectKey{Name: n.Name}, object)
	return object
}

// System reads what the agent says of a node's system; it is empty if it cannot be read.
func (w *World) System(ctx context.Context, n *Node) api.NodeSystemStatus {
	var s api.NodeSystem
	_ = w.Get(ctx, client.ObjectKey{Name: n.Name}, &s)
	return s.Status
}

// PowerOn powers the machine of a node on, until the end of the world or until CutPower.
func (w *World) PowerOn(n *Node) { n.Powered.PowerOn(w.t) }
