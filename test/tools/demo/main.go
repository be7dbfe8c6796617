// Command demo shows pivot's main task live on a virtual machine: an OS A boots in QEMU, finds an
// encapsulated MachineConfig, pivots with one reboot to its successor B, an image with derived
// layers, and proves it. Then the machine changes from one MachineConfig to another without a
// reboot, with one, and back. "make demo" runs it. With the argument "enter" it shows a first boot
// without a reboot instead: "make demo-enter".
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"machine-pivot/test/tools/tool"
	"machine-pivot/test/worlds/lab"
	"machine-pivot/test/worlds/vm"
)

func main() { os.Exit(tool.Run("demo", command)) }

func command(ctx context.Context, args []string, stdout, _ io.Writer) error {
	if missing := lab.Missing(); len(missing) > 0 {
		return fmt.Errorf("cannot boot a machine here: lacking %s (run make demo as root on Debian: it installs them)", strings.Join(missing, ", "))
	}
	if len(args) > 0 && args[0] == "enter" {
		return demoEnter(ctx, stdout)
	}
	return demo(ctx, stdout)
}

func demo(ctx context.Context, w io.Writer) (err error) {
	start := time.Now()
	heading(w, "building pivot, OS A, its successor B, and a registry that serves B (some minutes the first time)")
	// The oldest release whose libostree can roll back.
	world, err := lab.NewOf(ctx, ".", vm.GuestSpec{Suite: vm.Trixie}, w)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, world.Close()) }()
	want := world.Wanted()
	if want.Image, err = world.Derived(ctx); err != nil {
		return err
	}
	base, derived, err := world.Inspect(ctx, want.Image)
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "A is ostree commit %s\n%s\n", world.Guest.CommitA, served(want.Image, base, derived))

	heading(w, "MachineConfigs for image, kernel arguments and CPU pinning; pivotctl config ignition; and Ignition writes")
	files, err := world.Provision(ctx, want)
	if err != nil {
		return err
	}
	for _, f := range files {
		fmt.Fprintln(w, "  "+f.Path)
	}
	next, err := world.DerivedVersion(ctx, 2)
	if err != nil {
		return err
	}
	forLater, err := dayTwoFiles(want, next.Reference)
	if err != nil {
		return err
	}
	machine, err := world.MachineWith(ctx, "demo", lab.Setup{Files: append(files, forLater...)}, io.Discard)
	if err != nil {
		return err
	}
	machine.Extra = []string{"-smp", "2"} // one CPU for management, one for the other pods

	heading(w, powerOn)
	first, story, err := live(ctx, w, machine, vm.BootOptions{})
	if err != nil {
		return err
	}
	heading(w, powerOnAgain(first))
	second, proof, err := live(ctx, w, machine, vm.BootOptions{})
	if err != nil {
		return err
	}
	heading(w, proven)
	if err := prove(w, want, first, second); err != nil {
		return err
	}
	if err := lab.CheckStories(story, proof); err != nil {
		return err
	}
	if err := picture(w, second); err != nil {
		return err
	}
	if err := dayTwo(ctx, w, machine); err != nil {
		return err
	}
	fmt.Fprintf(w, "\n%.0f s in all\n", time.Since(start).Seconds())
	return nil
}

// pictureFile is in the directory of the built programs, which git ignores.
const pictureFile = "bin/firstboot.svg"

// picture saves the output of the machine's "pivot plot" of the first boot.
func picture(w io.Writer, second *vm.BootResult) error {
	r, err := second.Report()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(pictureFile), 0o755); err != nil {
		return fmt.Errorf("cannot keep the picture: %w", err)
	}
	if err := os.WriteFile(pictureFile, r.Plot, 0o644); err != nil {
		return fmt.Errorf("cannot keep the picture: %w", err)
	}
	fmt.Fprintf(w, "\nThe first boot as a picture, drawn by the machine's own pivot plot: %s\n", pictureFile)
	return nil
}

// Headings that the README shows, too.
const (
	powerOn = "power on: A boots, and this is its first boot"
	proven  = "the proof"
)

func powerOnAgain(first *vm.BootResult) string {
	return fmt.Sprintf("the machine %s after %.0f s; the same disk again", first.Exit, first.Duration.Seconds())
}

func served(image string, base, derived int) string {
	return fmt.Sprintf("B is served as %s: %d base and %d derived layers", image, base, derived)
}

func heading(w io.Writer, text string) { fmt.Fprintf(w, "\n=== %s\n", text) }

// live powers the machine on and prints its console story as it happens.
func live(ctx context.Context, w io.Writer, machine *vm.Machine, o vm.BootOptions) (*vm.BootResult, *lab.Story, error) {
	start := time.Now()
	story := &lab.Story{Tell: func(line string) { fmt.Fprintln(w, timed(time.Since(start), line)) }}
	o.OnLine = story.Line
	result, err := machine.Boot(ctx, o)
	return result, story, err
}

// timed returns a console line with its time.
func timed(at time.Duration, line string) string {
	return fmt.Sprintf("%6.1f s  %.150s", at.Seconds(), line)
}

// prove prints each claim with the machine's report of it. It fails if a claim does not hold.
func prove(w io.Writer, want lab.Want, first, second *vm.BootResult) error {
	r, err := second.Report()
	if err != nil {
		return err
	}
	claims := lab.Claims{To: w}
	claim := claims.Add
	claim(first.Exit == vm.Rebooted && second.Exit == vm.PoweredOff, "one reboot: the first power-on %s, the second %s", first.Exit, second.Exit)
	claim(r.Version == "B.2", "B is booted: version %s", r.Version)
	claim(second.Said(lab.DerivedSays), "its derived layers are merged: a unit of theirs says so")
	for _, arg := range strings.Fields(strings.Join(want.Kargs, " ")) {
		claim(strings.Contains(" "+r.Cmdline+" ", " "+arg+" "), "kernel argument %s", arg)
	}
	for _, f := range want.PinningFiles() {
		claim(r.HasFile(f) == nil, "pinning file %s", f.Path)
	}
	claim(r.Closed && !r.Encapsulated, "the first boot is closed: the file is now .bak")
	claim(r.Kubelet.ActiveState == "active", "kubelet runs, and only now")
	claim(r.Status.Phase == "done", "pivot status: %s, attempt %d", r.Status.Phase, r.Status.Attempt)
	for _, p := range r.Status.Phases {
		fmt.Fprintf(w, "     %-10s %6.1f s\n", p.Name, p.Seconds)
	}
	return claims.Err()
}
