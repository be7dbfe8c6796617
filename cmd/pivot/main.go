// Command pivot brings an image-based Linux host to its MachineConfig: OS image,
// kernel arguments, files, units and packages, in one transaction with one
// reboot, or without one if no change needs it.
package main

import (
	"os"

	"machine-pivot/internal/cli"
)

// version and commit are set by the linker.
var version, commit = "0-unknown", ""

func main() {
	if status := cli.Run(rootCommand(cli.Build{Version: version, Commit: commit})); status != 0 {
		os.Exit(status)
	}
}
