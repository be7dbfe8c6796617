package e2e_test

import (
	"testing"

	"machine-pivot/host"
	"machine-pivot/test/lab"
	"machine-pivot/test/vm"
)

// derived pivots to images that a container build has made: B with derived layers on
// top, in the system, and B and the same layers without an ostree commit, in the
// initramfs.
func derived(t *testing.T, l *lab.Lab) {
	image, err := l.Derived(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	plain, err := l.Plain(t.Context(), 300)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, image string
		mode        host.Mode
	}{
		{"layers, in the system", image, host.ModeSystem}, {"plain, in the initramfs", plain, host.ModeInitramfs},
	} {
		t.Run(c.name, func(t *testing.T) {
			want := l.Wanted()
			want.Image = c.image
			m := machineWith(t, l, lab.Setup{Encapsulated: encapsulated(t, want), Mode: c.mode})
			first := boot(t, m, vm.BootOptions{})
			expectPivot(t, first)
			expectPivotIn(t, first, c.mode)
			second := boot(t, m, vm.BootOptions{})
			expectArrived(t, second, want)
			if !second.Said(lab.DerivedSays) {
				t.Errorf("the console does not say %q", lab.DerivedSays)
			}
		})
	}
}
