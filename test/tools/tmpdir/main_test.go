package main

import (
	"math"
	"os"
	"path/filepath"
	"testing"
)

func TestUsable(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root: sets the immutable flag")
	}
	dir := t.TempDir()
	if err := usable(dir, 1); err != nil {
		t.Skip("not even here: ", err)
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
