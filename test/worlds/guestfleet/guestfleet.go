// Package guestfleet is a cluster of virtual machines in one pool, with the real API server and the real controllers of
// deploy/fleet on this host. Each machine has the real agent, as its unit and with kubelet's credentials, and real
// pivot and systemd. Only kubelet is a stand-in. Tests play in it, and "make cluster-demo" shows it.
package guestfleet

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"machine-pivot/test/worlds/bootlab"
	"machine-pivot/test/worlds/controlplane"
	"machine-pivot/test/worlds/fleet"
	"machine-pivot/test/worlds/guest"
	"machine-pivot/test/worlds/testenv"
	"machine-pivot/test/worlds/vm"
)

// World is such a cluster. Its nodes are in one pool.
type World struct {
	client.Client // of an administrator
	Plane         *controlplane.ControlPlane
	Lab           *bootlab.Lab
	Nodes         []*Node
	Fleet         *fleet.Fleet
	Controller    *fleet.Replica // the first one

	t     testenv.T
	admin string // file with an administrator's credentials
	out   out
}

// Options describe a cluster.
type Options struct {
	Nodes []string       // their names
	Base  bootlab.Config // which all machines have from their first boot; without an image, Lab.Image
	Files []vm.TreeFile  // that all machines have beside it
	// Before says that somebody else has made nodes of the machines: they have no MachineConfig, but the files of Base.
	Before bool
}

// New starts a cluster, and powers its machines on. source is the root of this project's checkout. It exists until
// the end of t.
func New(t testenv.T, source string, o Options) *World {
	t.Helper()
	w := &World{t: t}
	w.start(t, source)
	if o.Base.Image == "" {
		o.Base.Image = w.Lab.Image
	}
	w.Apply(o.Base)
	w.applyPool()
	first := w.rendered(t)
	if o.Before {
		first = nil
	}
	for _, name := range o.Nodes {
		w.Nodes = append(w.Nodes, w.join(t, name, first, o))
	}
	w.watch()
	for _, n := range w.Nodes {
		w.PowerOn(n)
	}
	return w
}

// start starts the control plane with a controller, and a registry.
func (w *World) start(t testenv.T, source string) {
	t.Helper()
	var err error
	// Its libostree supports "pivot rollback".
	if w.Lab, err = bootlab.NewOf(t.Context(), source, vm.GuestSpec{Suite: vm.Trixie}, t.Output(), "build", "install-agent"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Lab.Close(); err != nil {
			t.Error(err)
		}
	})
	w.Plane = controlplane.Start(t)
	log.SetLogger(logr.Discard()) // of the library, which would say that it has none
	if w.Client, err = client.New(w.Plane.Admin(), client.Options{Scheme: controlplane.Scheme(t)}); err != nil {
		t.Fatal(err)
	}
	w.admin = filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(w.admin, w.Plane.Kubeconfig(w.Plane.Admin()), 0o600); err != nil {
		t.Fatal(err)
	}
	w.Fleet = fleet.New(t, w.Plane, source, filepath.Join(w.Lab.Bin(), "pivot-fleet"))
	w.Plane.Deploy(filepath.Join(source, "deploy/host"))
	w.Controller = w.Fleet.Start()
}

// Status returns what "pivotctl cluster status" says.
func (w *World) Status(ctx context.Context) (string, error) {
	cmd := exec.CommandContext(ctx, filepath.Join(w.Lab.Bin(), "pivotctl"), "cluster", "status", "--kubeconfig", w.admin)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return string(out), nil
}

// Until waits until something is reached. It fails when a machine hangs or idles: see guest.Powered.
func (w *World) Until(t testenv.T, what string, reached func() bool) {
	t.Helper()
	var all []*guest.Powered
	for _, n := range w.Nodes {
		all = append(all, &n.Powered)
	}
	guest.UntilAll(t, what, reached, all...)
}

// idle is how long a machine may wait without a word: the others get their reboots meanwhile.
const idle = 30 * time.Minute
