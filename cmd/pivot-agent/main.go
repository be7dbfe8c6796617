// Command pivot-agent makes a machine that pivot maintains a node of a cluster. It carries out there what the cluster
// wants of the machine, and reports its progress in the cluster.
package main

import (
	"os"

	"github.com/spf13/cobra"

	"machine-pivot/internal/cli"
)

// version and commit are set by the linker.
var version, commit = "0-unknown", ""

func main() {
	if status := cli.Run(rootCommand(cli.Build{Version: version, Commit: commit})); status != 0 {
		os.Exit(status)
	}
}

func rootCommand(build cli.Build) *cobra.Command {
	return cli.Root("pivot-agent", build, "Maintain the machines of a cluster with pivot", nodeCommand(build))
}
