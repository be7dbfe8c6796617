package main

import (
	"testing"

	"machine-pivot/test/tools/script"
	"machine-pivot/test/worlds/hostdir"
)

// TestExpandingConfig: a MachineConfig of 7 MB is refused if its files decompress to 5 GB together, before they take
// memory. One just within the limit is planned.
func TestExpandingConfig(t *testing.T) {
	if testing.Short() {
		t.Skip("reads 3,000 compressed files")
	}
	h := hostdir.New(t)
	const limit = "more than 16777216 bytes of decompressed contents in total"
	bomb, within := script.Expanding(t, "bomb", 3000, 1<<20), script.Expanding(t, "within", 16, 1<<20)
	script.Bounded(t, 65, limit, "pivot", "apply", "--dry-run", "--root", h.Root, bomb)
	script.Bounded(t, 65, limit, "pivot", "diff", within, bomb)
	script.Bounded(t, 0, "/etc/within/15", "pivot", "apply", "--dry-run", "--root", h.Root, within)
}
