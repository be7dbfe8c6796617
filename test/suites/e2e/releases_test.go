package e2e_test

import (
	"slices"
	"strings"
	"testing"

	"machine-pivot/internal/settings"
	"machine-pivot/test/worlds/bootlab"
	"machine-pivot/test/worlds/vm"
)

// TestToNewerRelease runs a first boot to a newer Debian release: A's kernel, systemd and libostree
// are three years older than B's, and B's libostree must then roll back. Before the pivot, only A's
// initramfs runs.
func TestToNewerRelease(t *testing.T) {
	l := newLab(t, vm.GuestSpec{Suite: vm.Bookworm, SuiteB: vm.Trixie})
	thereAndBack(t, l, settings.ModeInitramfs, "6.1.", "6.12.")
}

// TestOnNewerRelease runs first boots, in the system and in the initramfs, with a newer libostree. That locks
// finalization by an option and by a key in the staged state, and has set-default.
func TestOnNewerRelease(t *testing.T) {
	l := newLab(t, vm.GuestSpec{Suite: vm.Trixie})
	t.Run("system", func(t *testing.T) { thereAndBack(t, l, settings.ModeSystem, "6.12.", "6.12.") })
	t.Run("trials", func(t *testing.T) { trials(t, l) })
	t.Run("trials, power cuts", func(t *testing.T) { cutTrials(t, l) })
	for _, mode := range []settings.Mode{settings.ModeSystem, settings.ModeInitramfs} {
		t.Run("power cuts, "+string(mode), func(t *testing.T) {
			c := newCutter(t, l, cutImage{reference: l.Image}, bootlab.Setup{Mode: mode})
			first, second := c.recordBoth()
			c.cut(cuts{flush: 8, random: 6, least: 25}, first, second)
		})
	}
}

// thereAndBack pivots a machine and then rolls it back (P26) permanently: to A's kernel, arguments
// and files. kernelA and kernelB are prefixes of both kernels' releases.
func thereAndBack(t *testing.T, l *bootlab.Lab, mode settings.Mode, kernelA, kernelB string) {
	want := l.Wanted()
	const goBack = "test.rollback"
	typed := bootlab.Typed("roll-back", "pivot rollback -r", "KernelCommandLine="+goBack)
	m := machineWith(t, l, bootlab.Setup{Encapsulated: encapsulated(t, want), Files: typed, Mode: mode})
	old := entry(t, m)

	first := boot(t, m, vm.BootOptions{})
	expectPivot(t, first)
	expectPivotIn(t, first, mode)
	second := boot(t, m, vm.BootOptions{})
	expectArrived(t, second, want)
	expectProven(t, m, want)
	expectKernel(t, second, kernelB)

	if back := boot(t, m, vm.BootOptions{ExtraArgs: []string{goBack}}); back.Exit != vm.Rebooted {
		t.Fatalf("the machine %s, want that it rebooted into the old system", back.Exit)
	}
	if now := entry(t, m); withoutBootDir(now.Options) != withoutBootDir(old.Options) {
		t.Errorf("options %q, want those from before: %q", now.Options, old.Options)
	}
	last := boot(t, m, vm.BootOptions{})
	expectKernel(t, last, kernelA)
	expectBack(t, last)
}

func entry(t *testing.T, m *vm.Machine) vm.BootEntry {
	t.Helper()
	entries, err := m.BootEntries(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return entries[0]
}

func expectKernel(t *testing.T, b *vm.BootResult, release string) {
	t.Helper()
	if got := report(t, b).Kernel; !strings.HasPrefix(got, release) {
		t.Errorf("kernel %s, want %s", got, release)
	}
}

// expectBack checks that the old system runs unchanged and that its first boot is closed.
func expectBack(t *testing.T, b *vm.BootResult) {
	t.Helper()
	if b.Exit != vm.PoweredOff {
		t.Fatalf("the machine %s, want no further reboot", b.Exit)
	}
	r := report(t, b)
	if r.Version != "A.1" || r.MarkerB || len(r.Files) != 0 {
		t.Errorf("booted version %s (marker %v) with %+v, want A.1 without files", r.Version, r.MarkerB, r.Files)
	}
	for _, arg := range []string{"nosmt", "loglevel=7"} {
		if slices.Contains(strings.Fields(r.Cmdline), arg) {
			t.Errorf("command line %q still has %s", r.Cmdline, arg)
		}
	}
	if r.Encapsulated || !r.Closed || r.Unit.ConditionResult != "no" {
		t.Errorf("the first boot is not closed: file there %v, .bak there %v, unit %+v", r.Encapsulated, r.Closed, r.Unit)
	}
	if r.Kubelet.ActiveState != "active" || r.FailedUnits != "" || r.Deployments != 2 {
		t.Errorf("kubelet %+v, failed units %q, %d deployments", r.Kubelet, r.FailedUnits, r.Deployments)
	}
	if r.Status.Phase != "done" {
		t.Errorf("status %+v, want done", r.Status)
	}
}
