// The program controlplane is a Kubernetes control plane for tests, in one binary. Each component is a subcommand,
// because they share most of their code, and linking that once is cheaper. It is a module of its own, so that its 2,000
// packages are no part of the graph, the checks and the documented dependencies of the project.
//
// The Go module of Kubernetes requires its own parts at version v0.0.0 and replaces them by directories, which does not
// count for its importers. So go.mod requires each part at the version of that k8s.io/kubernetes.
package main

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
)

// component runs a part of the control plane with the program's arguments, of which the first is its
// name, and returns the exit status.
type component func(args []string) int

func components() map[string]component {
	all := map[string]component{
		"etcd":           etcd,
		"kube-apiserver": command(apiserver.NewAPIServerCommand),
		"disruption":     disruptionMain,
	}
	maps.Copy(all, fullComponents())
	return all
}

func main() {
	all := components()
	if len(os.Args) < 2 || all[os.Args[1]] == nil {
		fmt.Fprintf(os.Stderr, "usage: controlplane %s [ARGUMENTS]\n", strings.Join(slices.Sorted(maps.Keys(all)), "|"))
		os.Exit(64)
	}
	os.Exit(all[os.Args[1]](os.Args[1:]))
}

func etcd(args []string) int {
	etcdmain.Main(args)
	return 0
}

// command returns the component that is a command of the Kubernetes code.
func command(build func() *cobra.Command) component {
	return func(args []string) int {
		c := build()
		c.SetArgs(args[1:])
		return cli.Run(c)
	}
}
