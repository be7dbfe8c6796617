// The program controlplane builds the control plane of the tests, their kubelet or their kubectl, into the cache, and
// prints the path of the binary.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"

	"machine-pivot/test/worlds/controlplane"
)

func main() {
	full := flag.Bool("full", false, "with kube-controller-manager and kube-scheduler")
	kubelet := flag.Bool("kubelet", false, "kubelet instead of the control plane")
	kubectl := flag.Bool("kubectl", false, "kubectl instead of the control plane")
	flag.Parse()
	form := controlplane.FormMini
	switch {
	case *kubelet:
		form = controlplane.FormKubelet
	case *kubectl:
		form = controlplane.FormKubectl
	case *full:
		form = controlplane.FormFull
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	path, err := controlplane.Program(ctx, form, os.Stderr)
	if _, offline := errors.AsType[controlplane.NoModules](err); offline && os.Getenv("CI") != "true" {
		fmt.Fprintf(os.Stderr, "%v: the tests that need it will be skipped\n", err)
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(path)
}
