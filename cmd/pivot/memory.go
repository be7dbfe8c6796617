package main

import (
	"os"
	"runtime/debug"
)

// importMemory is how much memory Go's runtime may have before it looks for garbage more
// often than it otherwise does, in bytes. An import of 100,000 files needs two thirds of
// it at once; the program's own pages come on top.
const importMemory = 96 << 20

// boundMemory keeps what an import leaves behind from doubling the memory that it takes:
// a machine's initramfs is in memory too. An administrator's own bound counts.
func boundMemory() {
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(importMemory)
	}
}
