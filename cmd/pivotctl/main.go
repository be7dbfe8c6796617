// Command pivotctl is for those who write and serve what machines are configured by:
// it validates, merges, renders and serves MachineConfigs, and makes and checks the
// files of CPU partitioning and of the container runtime.
package main

import (
	"os"

	"github.com/spf13/cobra"

	"machine-pivot/internal/cli"
)

// version is stamped by the build.
var version = "0-unknown"

func main() {
	if status := cli.Run(rootCommand(version)); status != 0 {
		os.Exit(status)
	}
}

func rootCommand(version string) *cobra.Command {
	return cli.Root("pivotctl", version, "Write, check and serve what image-based hosts are configured by",
		configCommand(), ctrcfgCommand(), pinningCommand(), kargsCommand())
}
