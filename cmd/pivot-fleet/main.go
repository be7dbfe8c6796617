// Command pivot-fleet has the controllers of the machines of a cluster. pivot-agent maintains its nodes. It is a
// program of its own because its libraries would make each node's agent half as large again in memory.
package main

import (
	"os"

	"github.com/spf13/cobra"
	_ "golang.org/x/crypto/x509roots/fallback" // its container image has no certificates of authorities

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
	return cli.Root("pivot-fleet", build, "Give the machines of a cluster their MachineConfigs", controllerCommand(build), serverCommand(build))
}
