package e2e_test

import (
	"path"
	"slices"
	"strings"
	"testing"

	"machine-pivot/host"
	"machine-pivot/test/lab"
	"machine-pivot/test/vm"
)

// TestSELinux is a first boot under an enforcing policy, in both modes. The new system
// must come up under its own, with nothing denied to pivot or to what it runs, and
// with nothing that restorecon would change but for what the guest itself leaves.
func TestSELinux(t *testing.T) {
	runSELinux(t, []selinuxCase{
		{"system", vm.GuestSpec{SELinux: vm.Enforcing}, enforced(host.ModeSystem, "")},
		{"initramfs, and a type that A does not know", vm.GuestSpec{SELinux: vm.NewType, Suite: vm.Trixie}, enforced(host.ModeInitramfs, "")},
	})
}

// TestSELinuxWhole has the other cases: of "make nightly".
func TestSELinuxWhole(t *testing.T) {
	runSELinux(t, []selinuxCase{
		{"initramfs with an old libostree", vm.GuestSpec{SELinux: vm.Enforcing}, enforced(host.ModeInitramfs, "cannot make a deployment the default after it was labelled")},
		{"a type that A may store", vm.GuestSpec{SELinux: vm.NewTypeAllowed}, enforced(host.ModeSystem, "")},
		{"a type that A may not store", vm.GuestSpec{SELinux: vm.NewType}, refusedType},
	})
}

type selinuxCase struct {
	name string
	spec vm.GuestSpec
	run  func(t *testing.T, l *lab.Lab)
}

func runSELinux(t *testing.T, cases []selinuxCase) {
	var boots []bootCase
	for _, c := range cases {
		boots = append(boots, bootCase{c.name, func(t *testing.T) { c.run(t, newLab(t, c.spec)) }})
	}
	together(t, boots)
}

// enforced is a first boot in a mode, unless the initramfs steps aside for the cause that
// is given: it has imported the image by then.
func enforced(mode host.Mode, aside string) func(t *testing.T, l *lab.Lab) {
	return func(t *testing.T, l *lab.Lab) {
		want := l.Wanted()
		m := machineWith(t, l, lab.Setup{Encapsulated: encapsulated(t, want), Mode: mode})
		first := boot(t, m, vm.BootOptions{})
		expectNothingDenied(t, first)
		expectPivot(t, first)
		if aside == "" {
			expectPivotIn(t, first, mode)
		} else {
			expectAside(t, first, aside)
		}
		second := boot(t, m, vm.BootOptions{})
		expectNothingDenied(t, second)
		expectArrived(t, second, want)
		r := report(t, second)
		if !r.Enforcing {
			t.Error("the new system does not enforce its policy")
		}
		expectLabels(t, r, want)
	}
}

// refusedType is a first boot that must say before its commit which label it is that
// the machine cannot store, and what to do.
func refusedType(t *testing.T, l *lab.Lab) {
	m := machineWith(t, l, lab.Setup{Encapsulated: encapsulated(t, l.Wanted())})
	only := boot(t, m, vm.BootOptions{})
	expectNothingDenied(t, only) // it asks, and does not try
	if only.Exit != vm.PoweredOff {
		t.Fatalf("the machine %s, want no reboot", only.Exit)
	}
	r := report(t, only)
	if !r.Enforcing || r.Unit.ActiveState != "failed" || r.Unit.ExecMainStatus != 78 || r.Deployments != 1 {
		t.Errorf("enforcing %v, unit %+v, %d deployments; want one, and the unit failed with 78", r.Enforcing, r.Unit, r.Deployments)
	}
	failure := r.Status.Error
	if failure == nil || !strings.Contains(failure.Message, "guest_new_t") || !strings.Contains(failure.Hint, "install_exec_t") {
		t.Errorf("status %+v, want the label and the remedy", failure)
	}
}

// expectNothingDenied wants SELinux to have denied nothing to pivot and the programs
// that it runs.
func expectNothingDenied(t *testing.T, b *vm.BootResult) {
	t.Helper()
	// Services without a domain of their own, pivot's among them, are in initrc_t.
	domains := []string{"initrc_t", "setfiles_t", "semanage_t"}
	programs := []string{"pivot", "ostree", "setfiles", "bwrap", "semodule"}
	for _, d := range b.Denials() {
		if slices.Contains(domains, d.Source) || slices.Contains(programs, d.Command) {
			t.Errorf("denied: %s", d.Text)
		} else {
			t.Logf("denied to others: %s", d.Text)
		}
	}
}

// guestsOwn are files whose labels the guest itself leaves other than its policy wants.
var guestsOwn = []string{
	"/etc/network-handed-over", // written in the initramfs by the guest's own unit
	"/usr/lib/modules/",        // the kernel, which has one label and a name in /boot, too
	"/boot/ostree/",            // the same
}

// expectLabels wants the pinning files, and all else below /etc, /usr, /boot and
// pivot's own directory, to have the labels of the policy.
func expectLabels(t *testing.T, r *vm.Report, want lab.Want) {
	t.Helper()
	var paths []string
	for _, l := range r.Labels {
		paths = append(paths, l.Path)
		if l.Label != l.Policy || l.Label == "" {
			t.Errorf("%s has the label %q, want %q", l.Path, l.Label, l.Policy)
		}
	}
	for _, f := range want.PinningFiles() {
		for _, name := range []string{f.Path, path.Dir(f.Path)} {
			if !slices.Contains(paths, name) {
				t.Errorf("no label of %s is reported: %+v", name, r.Labels)
			}
		}
	}
	for _, line := range r.Relabel {
		// restorecon says "Would relabel PATH from LABEL to LABEL".
		if fields := strings.Fields(line); len(fields) < 3 || !slices.ContainsFunc(guestsOwn, func(own string) bool { return strings.HasPrefix(fields[2], own) }) {
			t.Errorf("restorecon: %s", line)
		}
	}
}
