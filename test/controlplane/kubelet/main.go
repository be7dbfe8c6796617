// The program kubelet is the real kubelet, for machines of tests. It is no component of the control plane's program,
// because it is put onto the disks of machines, and because "make test" does not need it.
package main

import (
	"context"
	"os"

	"k8s.io/component-base/cli"
	"k8s.io/kubernetes/cmd/kubelet/app"
)

func main() {
	os.Exit(cli.Run(app.NewKubeletCommand(context.Background())))
}
