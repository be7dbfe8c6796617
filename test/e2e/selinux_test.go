package e2e_test

import (
	"path"
	"slices"
	"testing"

	"machine-pivot/host"
	"machine-pivot/test/lab"
	"machine-pivot/test/vm"
)

// TestLabels wants the pinning files and the directories that are new with them to
// have the labels of the new system's SELinux policy, wherever they were made: with
// the policy in the kernel, and in the initramfs, before it is.
func TestLabels(t *testing.T) {
	l := newLab(t, vm.GuestSpec{SELinux: true})
	for _, mode := range []host.Mode{host.ModeSystem, host.ModeInitramfs} {
		t.Run(string(mode), func(t *testing.T) {
			want := l.Wanted()
			m := machineWith(t, l, lab.Setup{
				Encapsulated: encapsulated(t, want), Mode: mode, KernelArgs: []string{vm.EnableSELinux},
			})
			first := boot(t, m, vm.BootOptions{})
			expectPivot(t, first)
			expectPivotIn(t, first, mode)
			second := boot(t, m, vm.BootOptions{})
			expectArrived(t, second, want)
			expectLabels(t, report(t, second), want)
		})
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
}
