package e2e_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"machine-pivot/internal/cluster/objects"
	"machine-pivot/test/worlds/lab"
)

// TestClusterDemo (D131) is "make cluster-demo": a control plane, and two machines in QEMU as its nodes. A MachineConfig
// and a ContainerRuntimeConfig are rolled out and taken back, shown by "pivotctl cluster status". It prints what it
// does, and whether it holds, to the standard output. "make nightly" runs it, too.
func TestClusterDemo(t *testing.T) {
	d := demo{t: t, claims: lab.Claims{To: os.Stdout}}
	d.title("a control plane with pivot-fleet, and two machines that become its nodes")
	d.w = newFleetWorld(t, os.Stdout, "n1", "n2")
	d.join()
	d.rollOut()
	d.takeBack()
	if err := d.claims.Err(); err != nil {
		t.Error(err)
	}
}

// demo is a run of the demo.
type demo struct {
	t      *testing.T
	w      *fleetWorld
	claims lab.Claims
	first  string // the MachineConfig with which the nodes join
}

func (d *demo) title(format string, args ...any) {
	fmt.Fprintf(os.Stdout, "\n=== %s\n", fmt.Sprintf(format, args...))
}

// join powers the machines on. Their first boot finds what it wants, so that they do not reboot.
func (d *demo) join() {
	d.first = d.w.pool().Spec.Configuration.Name
	for _, n := range d.w.nodes {
		n.powerOn(d.t)
	}
	d.w.until(d.t, "the nodes have joined", func() bool { return d.w.arrived(d.first) })
	for _, n := range d.w.nodes {
		d.claims.Add(n.booted() == 1, "%s is a node with the MachineConfig of its first boot, %s, and has not rebooted", n.name, d.first)
	}
}

// rollOut changes everything that a MachineConfig can: image, kernel argument, file; and the container runtime.
func (d *demo) rollOut() {
	d.title("a MachineConfig with an image, a kernel argument and a file, and a ContainerRuntimeConfig")
	c := changed(d.t, d.w.lab, "50-demo", 1)
	target := d.w.together(d.t, 3, func() { d.w.create(d.t, c); d.w.createPids(2048) })
	d.w.until(d.t, "both nodes have it", func() bool { return d.w.arrived(target) })
	for _, n := range d.w.nodes {
		d.claims.Add(n.booted() == 2, "%s has %s, after one reboot", n.name, target)
		d.has(n, "the image", "test -f /usr/share/openshift/metadata && cat /usr/share/openshift/metadata", "1")
		d.has(n, "the kernel argument", "grep -o "+c.Kargs[0]+" /proc/cmdline", c.Kargs[0])
		d.has(n, "the file", "cat "+nodeFile, c.Name)
		d.has(n, "the limit of the container runtime", "grep -rho 'pids_limit = 2048' /etc/crio", "pids_limit = 2048")
	}
	d.oneAtATime()
}

// takeBack deletes both objects.
func (d *demo) takeBack() {
	d.title("both are deleted")
	d.w.together(d.t, 1, func() {
		d.w.delete(d.t, &objects.ContainerRuntimeConfig{}, pidsName)
		d.w.delete(d.t, &objects.MachineConfig{}, "50-demo")
	})
	d.w.until(d.t, "both nodes have what they had", func() bool { return d.w.arrived(d.first) })
	for _, n := range d.w.nodes {
		d.claims.Add(n.booted() == 3, "%s has %s again, after one reboot", n.name, d.first)
		d.has(n, "no kernel argument", "grep -c node.50-demo /proc/cmdline", "0")
		d.has(n, "the file of before", "cat "+nodeFile, "00-worker")
		d.has(n, "no limit of the container runtime", "grep -rhc pids_limit /etc/crio || echo none", "none")
	}
	d.oneAtATime()
}

// has claims that a command on a machine prints something.
func (d *demo) has(n *fleetNode, what, command, want string) {
	got, ok := n.shell.types(d.t, command)
	d.claims.Add(ok && got == want, "%s: %s: %s", n.name, what, strings.ReplaceAll(got, "\n", " "))
}

func (d *demo) oneAtATime() {
	d.claims.Add(d.w.most.Load() == 1, "never more than one node was out of service")
}
