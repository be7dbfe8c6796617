// Command pivotctl is for those who write and serve what machines are configured by:
// it validates, merges, renders and serves MachineConfigs, and makes and checks the
// files of CPU partitioning and of the container runtime.
package main

import (
	"os"

	"github.com/spf13/cobra"

	"machine-pivot/internal/cli"
)

// version and commit are stamped by the build.
var version, commit = "0-unknown", ""

func main() {
	if status := cli.Run(rootCommand(cli.Build{Version: version, Commit: commit})); status != 0 {
		os.Exit(status)
	}
}

func rootCommand(build cli.Build) *cobra.Command {
	commands := []*cobra.Command{configCommand(), ctrcfgCommand(), pinningCommand(), kargsCommand()}
	commands = append(commands, cli.Elsewhere("pivot", "for machines", "firstboot", "rebase", "rollback", "plan", "status", "verify", "image", "wait")...)
	return cli.Root("pivotctl", build, "Write, check and serve what image-based hosts are configured by", commands...)
}
