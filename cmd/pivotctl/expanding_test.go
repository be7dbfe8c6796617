package main

import (
	"testing"

	"machine-pivot/test/tools/script"
)

// TestExpandingConfigs: what MachineConfigs decompress to is limited for all files of a
// command together, for each MachineConfig, and for those that are merged.
func TestExpandingConfigs(t *testing.T) {
	if testing.Short() {
		t.Skip("reads 3,000 compressed files")
	}
	const limit = "more than 67108864 bytes of decompressed contents in total"
	const machines = "more than 16777216 bytes of decompressed contents in total"
	config := func(name string, files int) string { return script.Expanding(t, name, files, 1<<20) }
	bomb, half, rest := config("bomb", 3000), config("half", 8), config("rest", 8)
	script.Bounded(t, 65, machines, "pivotctl", "config", "validate", bomb)
	script.Bounded(t, 65, machines, "pivotctl", "config", "merge", "--role", "worker", half, bomb)
	script.Bounded(t, 65, machines, "pivotctl", "config", "merge", "--role", "worker", half, config("more", 9))
	script.Bounded(t, 65, limit, "pivotctl", "config", "validate", config("a", 16), config("b", 16), config("c", 16), config("d", 16), config("e", 1))
	script.Bounded(t, 0, "", "pivotctl", "config", "merge", "--role", "worker", half, rest)
}
