// Command clusterdemo shows a rollout over the machines of a cluster live: a real control plane, the real
// controllers, and two machines in QEMU with the real agent. The nodes of an existing cluster are taken in. A MachineConfig
// and a ContainerRuntimeConfig are rolled out and taken back, also a MachineConfig that fails, as "pivotctl cluster status"
// shows it. "make cluster-demo" runs it.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"machine-pivot/test/tools/tool"
	"machine-pivot/test/worlds/bootlab"
	"machine-pivot/test/worlds/guestfleet"
	"machine-pivot/test/worlds/testenv"
)

func main() { os.Exit(tool.Run("clusterdemo", demo)) }

func demo(ctx context.Context, _ []string, w, _ io.Writer) error {
	if missing := bootlab.Missing(); len(missing) > 0 {
		return fmt.Errorf("cannot boot a machine here: lacking %s (run make cluster-demo as root on Debian: it installs them)", strings.Join(missing, ", "))
	}
	start := time.Now()
	if err := testenv.Play(ctx, w, func(t testenv.T) { perform(t, w, ".") }); err != nil {
		return err
	}
	fmt.Fprintf(w, "\n%.0f s in all\n", time.Since(start).Seconds())
	return nil
}

// perform has all acts played. source is the root of this project's checkout.
func perform(t testenv.T, w io.Writer, source string) {
	heading(w, "building pivot and the machines' system; a control plane, its controllers, a registry (some minutes the first time)")
	start := time.Now()
	world := guestfleet.New(t, source, guestfleet.Options{Nodes: []string{"n1", "n2"}, Base: base(), Files: files(), Before: true})
	next, err := world.Lab.Derived(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	d := &director{T: t, world: world, to: w, start: start, images: images{world.Lab.Image, next}}
	for _, a := range acts() {
		d.play(a)
	}
}
