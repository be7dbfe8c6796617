package e2e_test

import (
	"fmt"
	"slices"
	"testing"

	"machine-pivot/internal/settings"
	systemdunits "machine-pivot/systemd-units"
	"machine-pivot/test/worlds/bootlab"
	"machine-pivot/test/worlds/registry"
	"machine-pivot/test/worlds/vm"
)

// plainInInitramfs pivots in the initramfs to an image that a container build made from B without
// an ostree commit. powerCuts covers an image with derived layers.
func plainInInitramfs(t *testing.T, l *bootlab.Lab) {
	image, err := l.Plain(t.Context(), 300)
	if err != nil {
		t.Fatal(err)
	}
	want := l.Wanted()
	want.Image = image
	m := machineWith(t, l, bootlab.Setup{Encapsulated: encapsulated(t, want), Mode: settings.ModeInitramfs})
	first := boot(t, m, vm.BootOptions{})
	expectPivot(t, first)
	expectPivotIn(t, first, settings.ModeInitramfs)
	second := boot(t, m, vm.BootOptions{})
	expectArrived(t, second, want)
	expectMerged(t, second, 1)
}

// expectMerged checks that the running system contains the derived layers of a version.
func expectMerged(t *testing.T, b *vm.BootResult, version int) {
	t.Helper()
	if says := fmt.Sprintf("%s, version %d", bootlab.DerivedSays, version); !b.Said(says) {
		t.Errorf("the console does not say %q", says)
	}
}

// toNextVersion is the kernel argument that makes a machine with the files of withNextVersion
// pivot to the next version of its image.
const toNextVersion = "test.next-version"

// withNextVersion returns the files that make a machine pivot to next on a boot with toNextVersion. It does so in the
// unit that follows a tag, with what that may do.
func withNextVersion(next bootlab.Image) []vm.TreeFile {
	instead := "[Service]\nExecStart=\nExecStart=/usr/bin/pivot rebase " + next.Reference + " -r\n"
	return append(bootlab.Typed("next-version", "systemctl start "+systemdunits.Upgrade, "KernelCommandLine="+toNextVersion),
		vm.TreeFile{Path: "/etc/systemd/system/" + systemdunits.Upgrade + ".d/next.conf", Mode: 0o644, Content: []byte(instead)})
}

// nextVersion boots a machine with the files of withNextVersion for the first time into its image,
// and pivots it to the next version. That shares all layers but the last one, which must be the
// only one to be fetched.
func nextVersion(t *testing.T, l *bootlab.Lab, m *vm.Machine, want bootlab.Want, next bootlab.Image) {
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
