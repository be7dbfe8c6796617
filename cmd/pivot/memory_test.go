package main

import (
	"math"
	"runtime"
	"runtime/debug"
	"testing"
	"time"
)

// TestMemoryLimitFollowsUse: where more is in use than the limit allows, the limit grows, so that the garbage
// collector does not run without a pause. It does not shrink again.
func TestMemoryLimitFollowsUse(t *testing.T) {
	before := debug.SetMemoryLimit(-1)
	t.Cleanup(func() { debug.SetMemoryLimit(before) })
	t.Setenv("GOMEMLIMIT", "")
	limitMemory(planMemory)
	if got := debug.SetMemoryLimit(-1); got != planMemory {
		t.Fatalf("the limit is %d, want %d", got, planMemory)
	}
	const needed = 3 * planMemory
	used := make([]byte, needed)
	expectLimit(t, needed/3*4)
	runtime.KeepAlive(used)
	runtime.GC()
	expectLimit(t, needed/3*4)
}

// TestAdministratorsMemoryLimit: a limit in the environment stays.
func TestAdministratorsMemoryLimit(t *testing.T) {
	before := debug.SetMemoryLimit(math.MaxInt64)
	t.Cleanup(func() { debug.SetMemoryLimit(before) })
	t.Setenv("GOMEMLIMIT", "1GiB")
	limitMemory(planMemory)
	if got := debug.SetMemoryLimit(-1); got != math.MaxInt64 {
		t.Errorf("the limit is %d, want that of the environment", got)
	}
}

// expectLimit waits until the limit is at least so many bytes, as it becomes soon after a collection.
func expectLimit(t *testing.T, least int64) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; runtime.GC() {
		switch got := debug.SetMemoryLimit(-1); {
		case got >= least:
			return
		case time.Now().After(end):
			t.Fatalf("the limit is %d, want at least %d", got, least)
		}
	}
}
