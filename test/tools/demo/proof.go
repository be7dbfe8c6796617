package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"machine-pivot/test/worlds/bootlab"
	"machine-pivot/test/worlds/vm"
)

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

// prove prints each claim with the machine's report. It fails if a claim does not hold.
func prove(w io.Writer, claims *bootlab.Claims, want bootlab.Want, first, second *vm.BootResult) error {
	r, err := second.Report()
	if err != nil {
		return err
	}
	claim := claims.Add
	claim(first.Exit == vm.Rebooted && second.Exit == vm.PoweredOff, "one reboot: the first power-on %s, the second %s", first.Exit, second.Exit)
	claim(r.Version == "B.2", "B is booted: version %s", r.Version)
	claim(second.Said(bootlab.DerivedSays), "its derived layers are merged: a unit of theirs says so")
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
