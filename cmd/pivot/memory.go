package main

import (
	"os"
	"runtime/debug"

	"machine-pivot/pivot"
)

// Soft memory limits for Go's runtime, in bytes: above them, the garbage collector runs more
// often. The program's own pages are not included.
const (
	planMemory = 44 << 20 // a MachineConfig of thousands of files needs two thirds of it at once
	// An import of 100,000 files needs two thirds of it at once.
	importMemory = 96 << 20
)

// limitMemory keeps garbage from doubling the memory in use, because a machine's initramfs is
// in memory, too. An administrator's limit in GOMEMLIMIT takes precedence.
func limitMemory(bytes int64) {
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(bytes)
	}
}

// memoryForPull raises the limit to that of an import when a pull begins.
func memoryForPull(e pivot.Event) {
	if e.Kind == pivot.EventBegan && e.Step == pivot.StepPull {
		limitMemory(importMemory)
	}
}
