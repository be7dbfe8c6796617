// Command pivotctl is for authors and operators of machine configuration: it validates, merges,
// renders and serves MachineConfigs, and generates and checks the files of CPU partitioning and
// of the container runtime.
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
	commands := []*cobra.Command{configCommand(), ctrcfgCommand(), pinningCommand(), kargsCommand()}
	commands = append(commands, cli.Elsewhere("pivot", "for machines",
		"firstboot", "rebase", "apply", "rollback", "confirm", "plan", "diff", "status", "verify", "image", "wait", "plot", "trial", "project", "release-slot")...)
	return cli.Root("pivotctl", build, "Write, check and serve the configuration of image-based hosts", commands...)
}
