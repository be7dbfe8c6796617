package e2e_test

import (
	"fmt"
	"slices"
	"testing"

	"machine-pivot/internal/host"
	"machine-pivot/test/lab"
	"machine-pivot/test/registry"
	"machine-pivot/test/vm"
)

// plainInInitramfs pivots in the initramfs to an image that a container build has made of B
// without an ostree commit. The one with derived layers is powerCuts'.
func plainInInitramfs(t *testing.T, l *lab.Lab) {
	image, err := l.Plain(t.Context(), 300)
	if err != nil {
		t.Fatal(err)
	}
	want := l.Wanted()
	want.Image = image
	m := machineWith(t, l, lab.Setup{Encapsulated: encapsulated(t, want), Mode: host.ModeInitramfs})
	first := boot(t, m, vm.BootOptions{})
	expectPivot(t, first)
	expectPivotIn(t, first, host.ModeInitramfs)
	second := boot(t, m, vm.BootOptions{})
	expectArrived(t, second, want)
	expectMerged(t, second, 1)
}

// expectMerged wants the derived layers of a version to be what runs.
func expectMerged(t *testing.T, b *vm.BootResult, version int) {
	t.Helper()
	if says := fmt.Sprintf("%s, version %d", lab.DerivedSays, version); !b.Said(says) {
		t.Errorf("the console does not say %q", says)
	}
}

// toNextVersion is the argument on the kernel command line with which a machine of
// withNextVersion goes on to the next version of its image.
const toNextVersion = "test.next-version"

// withNextVersion are the files that make a machine do so.
func withNextVersion(next lab.Image) []vm.TreeFile {
	return lab.Typed("next-version", "pivot rebase "+next.Reference+" -r", "KernelCommandLine="+toNextVersion)
}

// nextVersion boots a machine of withNextVersion for the first time with its image, and
// takes it to the next version: that shares all layers but the last, and no other is
// fetched.
func nextVersion(t *testing.T, l *lab.Lab, m *vm.Machine, want lab.Want, next lab.Image) {
	t.Helper()
	since := l.Registry.Requests()
	update := boot(t, m, vm.BootOptions{ExtraArgs: []string{toNextVersion}})
	if update.Exit != vm.Rebooted {
		t.Fatalf("the machine %s, want a reboot", update.Exit)
	}
	expectMerged(t, update, 1)
	digests, err := registry.LastLayer(next)
	if err != nil {
		t.Fatal(err)
	}
	if pulled := l.Registry.Pulled(since); !slices.Equal(pulled, digests) {
		t.Errorf("the registry was asked for %q, want manifest, config and last layer: %q", pulled, digests)
	}
	updated := boot(t, m, vm.BootOptions{})
	want.Image = next.Reference
	expectTarget(t, updated, want)
	expectMerged(t, updated, 2)
}
