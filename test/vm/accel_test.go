package vm

import (
	"os/exec"
	"testing"
)

// TestProbe runs the probe's program where it always works, so that its failing
// under KVM says something about KVM.
func TestProbe(t *testing.T) {
	if _, err := exec.LookPath("qemu-system-x86_64"); err != nil {
		t.Skip("QEMU is not installed")
	}
	if works, err := probe(t.Context(), software, t.TempDir()); err != nil || !works {
		t.Errorf("probe of %s: %v, %v", software, works, err)
	}
	accel, err := accelerator(t.Context())
	if err != nil {
		t.Error(err)
	}
	t.Logf("accelerator: %s", accel)
}
