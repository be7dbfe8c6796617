package main

import (
	"math"
	"os"
	"path/filepath"
	"testing"

	"machine-pivot/test/tools/need"
)

func TestUsable(t *testing.T) {
	need.Root(t)
	dir := t.TempDir()
	if err := usable(dir, 1); err != nil {
		need.Lacking(t, "needs a usable directory: "+err.Error())
	}
	if usable(dir, math.MaxUint64) == nil {
		t.Error("a directory has all the room there could be")
	}
	for _, bad := range []string{filepath.Join(dir, "absent"), "/proc/self"} {
		if usable(bad, 1) == nil {
			t.Errorf("%s is usable", bad)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}
