// The program controlplane builds the control plane of the tests into the cache, and prints the path
// of the binary.
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
	flag.Parse()
	form := controlplane.Mini
	if *full {
		form = controlplane.Full
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
