package vm

import (
	"slices"
	"testing"

	"machine-pivot/test/tools/need"
)

// TestProbe runs the probe program under emulation, where it always works. A failure under KVM
// is then due to KVM.
func TestProbe(t *testing.T) {
	need.Program(t, "qemu-system-x86_64")
	if works, err := probe(t.Context(), software, t.TempDir()); err != nil || !works {
		t.Errorf("probe of %s: %v, %v", software, works, err)
	}
	accel, err := accelerator(t.Context())
	if err != nil {
		t.Error(err)
	}
	t.Logf("accelerator: %s", accel)
}

// TestProcessors checks that an emulated guest gets one processor and any other guest two, and
// that a machine's own -smp argument comes last, so that it overrides these.
func TestProcessors(t *testing.T) {
	for accel, want := range map[string]string{software: "1", hardware: "2"} {
		args := qemu{accel: accel, extra: []string{"-smp", "2,threads=2"}}.command(t.Context()).Args
		first := slices.Index(args, "-smp")
		last := len(args) - 2
		if args[first+1] != want || args[last] != "-smp" || args[last+1] != "2,threads=2" {
			t.Errorf("%s: arguments %q, want -smp %s and at the end what the machine says", accel, args, want)
		}
	}
}
