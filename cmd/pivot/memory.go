package main

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"

	"machine-pivot/pivot"
)

// Soft memory limits for Go's runtime, in bytes: above them, the garbage collector runs more
// often. The program's own pages are not included.
const (
	planMemory   = 40 << 20 // a MachineConfig of thousands of files needs three quarters of it at once
	importMemory = 72 << 20 // an import of 70,000 files needs three quarters of it at once
)

// limitMemory keeps garbage from doubling the memory in use, because a machine's initramfs is in memory, too. Where
// what is in use needs more than three quarters of the limit, the limit grows with it. A collector without room would
// run without a pause, and an import of 500,000 files took 1.4 times the processor time. An administrator's limit in
// GOMEMLIMIT takes precedence.
func limitMemory(bytes int64) {
	if !memoryIsOurs() {
		return
	}
	debug.SetMemoryLimit(bytes)
	afterCollection(func() { raiseMemory(usedMemory() / 3 * 4) })
}

// memoryForPull raises the limit to that of an import when a pull begins.
func memoryForPull(e pivot.Event) {
	if e.Kind == pivot.EventBegan && e.Step == pivot.StepPull && memoryIsOurs() {
		raiseMemory(importMemory)
	}
}

func memoryIsOurs() bool { return os.Getenv("GOMEMLIMIT") == "" }

// raiseMemory raises the limit; it never lowers it.
func raiseMemory(bytes int64) {
	if bytes > debug.SetMemoryLimit(-1) {
		debug.SetMemoryLimit(bytes)
	}
}

// usedMemory returns how many bytes of the heap the last collection has found in use.
func usedMemory() int64 {
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(sample)
	return int64(sample[0].Value.Uint64())
}

// afterCollection calls act after each garbage collection.
func afterCollection(act func()) {
	type unused struct{ _ *byte } // has a pointer: the runtime may keep small values without one
	runtime.AddCleanup(&unused{}, func(struct{}) {
		act()
		afterCollection(act)
	}, struct{}{})
}
