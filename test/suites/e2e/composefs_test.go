package e2e_test

import (
	"strings"
	"testing"

	"machine-pivot/internal/settings"
	"machine-pivot/test/worlds/bootlab"
	"machine-pivot/test/worlds/vm"
)

const (
	prepareRoot     = "usr/lib/ostree/prepare-root.conf"
	composefsNeeded = "[composefs]\nenabled = yes\n"
)

// TestComposefs runs a first boot, in the initramfs, from a system without composefs into an image with an initramfs
// that requires it. libostree leaves /boot to the started system there, so pivot mounts it. It is part of "make
// nightly", because no stable Debian release has a libostree that supports composefs yet.
func TestComposefs(t *testing.T) {
	l := newLab(t, vm.GuestSpec{
		Suite: vm.Forky, OverlayB: []vm.TreeFile{{Path: "/" + prepareRoot, Mode: 0o644, Content: []byte(composefsNeeded)}},
	})
	want := l.Wanted()
	said := bootlab.Typed("say-root", "echo @@root $$(stat -f -c %%T /)", "PathExists=/usr")
	m := machineWith(t, l, bootlab.Setup{Encapsulated: encapsulated(t, want), Files: said, Mode: settings.ModeInitramfs})
	first := boot(t, m, vm.BootOptions{})
	expectPivot(t, first)
	expectPivotIn(t, first, settings.ModeInitramfs)
	second := boot(t, m, vm.BootOptions{})
	expectArrived(t, second, want)
	if !second.Said("@@root overlayfs") {
		t.Error("the root is not composefs")
	}
	// pivot works on such a system as on any other.
	expectProven(t, m, want)
}

// composefsRefused runs a first boot into a system that requires composefs, with a libostree that
// cannot make the composefs image.
func composefsRefused(t *testing.T, l *bootlab.Lab) {
	image, err := l.WithFiles(t.Context(), "composefs", map[string]string{prepareRoot: composefsNeeded})
	if err != nil {
		t.Fatal(err)
	}
	want := l.Wanted()
	want.Image = image
	m := machineWith(t, l, bootlab.Setup{Encapsulated: encapsulated(t, want)})
	only := boot(t, m, vm.BootOptions{})
	if only.Exit != vm.PoweredOff {
		t.Fatalf("the machine %s, want no reboot", only.Exit)
	}
	r := report(t, only)
	if r.Unit.ActiveState != "failed" || r.Unit.ExecMainStatus != 78 || r.Deployments != 1 {
		t.Errorf("unit %+v, %d deployments; want one, and the unit failed with 78", r.Unit, r.Deployments)
	}
	if r.Kubelet.ActiveState == "active" || only.Said("@@kubelet started") {
		t.Error("kubelet started")
	}
	failure := r.Status.Error
	if failure == nil || !strings.Contains(failure.Message, "libostree 2022.7 of this host does not have composefs") || failure.Hint == "" {
		t.Errorf("status %+v, want what is missing and the remedy", failure)
	}
}
