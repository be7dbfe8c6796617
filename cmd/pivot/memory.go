package main

import (
	"os"
	"runtime/debug"

	"machine-pivot/pivot"
)

// How much memory Go's runtime may have before it looks for garbage more often than it
// otherwise does, in bytes. The program's own pages come on top.
const (
	planMemory = 44 << 20 // a MachineConfig of thousands of files needs two thirds of it at once
	// An import of 100,000 files needs two thirds of it at once.
	importMemory = 96 << 20
)

// boundMemory keeps what work leaves behind from doubling the memory that it takes: a
// machine's initramfs is in memory too. An administrator's own bound counts.
func boundMemory(bytes int64) {
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(bytes)
	}
}

// memoryForPull gives a run the memory of an import when it begins one.
func memoryForPull(e pivot.Event) {
	if e.Kind == pivot.EventBegan && e.Step == pivot.StepPull {
		boundMemory(importMemory)
	}
}
