package main

import (
	"testing"

	"machine-pivot/test/tools/script"
)

// TestExpandingConfigs (D75): what MachineConfigs decompress to is limited for all files of a
// command together.
func TestExpandingConfigs(t *testing.T) {
	if testing.Short() {
		t.Skip("reads 3,000 compressed files")
	}
	const limit = "more than 67108864 bytes of decompressed contents in total"
	bomb, half, rest := script.Expanding(t, "bomb", 3000, 1<<20), script.Expanding(t, "half", 40, 1<<20), script.Expanding(t, "rest", 24, 1<<20)
	script.Bounded(t, 65, limit, "pivotctl", "config", "validate", bomb)
	script.Bounded(t, 65, limit, "pivotctl", "config", "merge", "--role", "worker", half, bomb)
	script.Bounded(t, 65, limit, "pivotctl", "config", "validate", half, half)
	script.Bounded(t, 0, "", "pivotctl", "config", "merge", "--role", "worker", half, rest)
}
