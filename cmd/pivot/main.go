// Command pivot completes the first boot of an image-based Linux host: it moves
// the machine to the OS image, kernel arguments and CPU pinning that its
// encapsulated MachineConfig names, in one transaction with one reboot.
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
