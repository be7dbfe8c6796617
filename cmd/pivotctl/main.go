// Command pivotctl is for authors and operators of machine configuration. It validates, merges, renders and serves
// MachineConfigs, generates and checks the files of CPU partitioning and of the container runtime, and shows what a
// fleet does.
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
	commands := []*cobra.Command{configCommand(), ctrcfgCommand(), pinningCommand(), checkCommand(), kargsCommand(), clusterCommand(build)}
	commands = append(commands, cli.Elsewhere("pivot", "for machines",
		"firstboot", "enter", "rebase", "upgrade", "apply", "rollback", "confirm", "plan", "diff", "status", "verify", "image", "facts", "wait", "plot", "trial", "project", "static-pods", "release-slot", "hand-back")...)
	root := cli.Root("pivotctl", build, "Write, check and serve the configuration of image-based hosts", commands...)
	cli.Teach(root, foreign())
	return root
}

// foreign returns what users of other tools, and of the commands without their group, type, and
// what does it here.
func foreign() []cli.Foreign {
	const inConfig = "it is one of the commands of config"
	return []cli.Foreign{
		{Typed: []string{"validate"}, Why: inConfig, Call: "pivotctl config validate FILE"},
		{Typed: []string{"merge"}, Why: inConfig, Call: "pivotctl config merge --role ROLE DIR"},
		{Typed: []string{"render"}, Why: inConfig, Call: "pivotctl config render --role ROLE DIR"},
		{Typed: []string{"ignition"}, Why: inConfig, Call: "pivotctl config ignition --role ROLE DIR"},
		{Typed: []string{"serve"}, Why: inConfig, Call: "pivotctl config serve DIR"},
		{Typed: []string{"cpuset"}, Why: "it is one of the commands of pinning", Call: "pivotctl pinning cpuset SET"},
	}
}
