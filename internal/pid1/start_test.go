package pid1_test

import (
	"testing"

	"machine-pivot/internal/pid1"
)

// TestID tests that each start of a kernel has its own ID, that of an ordinary boot is the boot ID, and that each
// ID names its kernel.
func TestID(t *testing.T) {
	const boot = "00000001-9d3f-4b52-a1c6-5e0f7d2b8a94"
	seen := map[pid1.StartID]uint32{}
	for _, count := range []uint32{0, 1, 2, 10, 11, 1<<32 - 1} {
		id := pid1.StartAfter(boot, count)
		if other, ok := seen[id]; ok {
			t.Errorf("%s is the ID after %d and after %d soft reboots", id, other, count)
		}
		seen[id] = count
		if id.Boot() != boot || id.Soft() != (count > 0) {
			t.Errorf("%s: kernel %s, soft %v", id, id.Boot(), id.Soft())
		}
	}
	if id := pid1.StartAfter(boot, 0); id != boot {
		t.Errorf("an ordinary boot has ID %s", id)
	}
	entered := pid1.StartAfter(boot, 0).IfEntered()
	if entered == boot || entered.Boot() != boot || entered.Soft() || !entered.Entered() {
		t.Errorf("a system that was entered has ID %s", entered)
	}
	if id := pid1.StartAfter(boot, 2); id.IfEntered() != id || id.Entered() || pid1.StartID("").IfEntered() != "" {
		t.Errorf("after a soft reboot of such a system the ID is %s", id.IfEntered())
	}
	if id := pid1.StartAfter("", 3); id != "" || id.Soft() || id.Boot() != "" {
		t.Errorf("an unknown boot has ID %q", id)
	}
}
