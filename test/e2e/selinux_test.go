package e2e_test

import (
	"path"
	"slices"
	"testing"

	"machine-pivot/host"
	"machine-pivot/test/lab"
	"machine-pivot/test/vm"
)

// TestSELinux is a first boot under an enforcing policy, in both modes. The new system
// must come up under its own, with nothing denied to pivot or to what it runs, and
// with nothing that restorecon would change.
func TestSELinux(t *testing.T) {
	for _, c := range []struct {
		name string
		spec vm.GuestSpec
		run  func(t *testing.T, l *lab.Lab)
	}{
		{"system", vm.GuestSpec{SELinux: vm.Enforcing}, enforced(host.ModeSystem, host.ModeSystem)},
		{"initramfs", vm.GuestSpec{SELinux: vm.NewType, Suite: vm.Trixie}, enforced(host.ModeInitramfs, host.ModeInitramfs)},
	} {
		t.Run(c.name, func(t *testing.T) { c.run(t, newLab(t, c.spec)) })
	}
}

// enforced is a first boot whose settings ask for one mode, done in another.
func enforced(asked, done host.Mode) func(t *testing.T, l *lab.Lab) {
	return func(t *testing.T, l *lab.Lab) {
		want := l.Wanted()
		m := machineWith(t, l, lab.Setup{Encapsulated: encapsulated(t, want), Mode: asked})
		first := boot(t, m, vm.BootOptions{})
		expectPivot(t, first)
		expectPivotIn(t, first, done)
		expectNothingDenied(t, first)
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
		t.Errorf("restorecon: %s", line)
	}
}
