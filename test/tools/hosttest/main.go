// Command hosttest runs first boots of pivot on a real system with a boot loader, ostree and Ignition, like the
// published images of Fedora CoreOS and RHCOS. It is a disk image, or a directory with the files. It makes no
// assumptions about the contents: Ignition adds pivot, a MachineConfig, and a unit that writes a report of each boot to
// the second serial port. "make test-host" runs it; docs/dev/testing.md describes how.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"machine-pivot/test/tools/tool"
	"machine-pivot/test/worlds/bootlab"
	"machine-pivot/test/worlds/registry"
)

func main() { os.Exit(tool.Run("hosttest", command)) }

// settings are the settings of a run.
type settings struct {
	image, osImage string // the system (a disk or a directory), and the image to pivot to
	programs       string // directory with pivot and pivotctl
	version        string // version of the Ignition specification
	memoryMiB      int
	qemu           []string  // additional arguments
	kargs          []string  // additional kernel arguments of a system in a directory
	stdout         io.Writer // for the results of the claims
	console        io.Writer // for the machine's console; nil: discard
}

func command(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	s := settings{stdout: stdout}
	flags := flag.NewFlagSet("hosttest", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&s.image, "image", "", "the system: its disk image, qcow2 or raw, or a directory with all of its files; it is copied, not changed")
	flags.StringVar(&s.osImage, "os-image", "", "the OS image to pivot to, as skopeo names it (docker://HOST/NAME:TAG, oci:DIR:TAG); \"\": only what needs none")
	flags.StringVar(&s.programs, "programs", "bin", "the directory of pivot and pivotctl")
	flags.StringVar(&s.version, "ignition", "3.2.0", "the version of the Ignition specification that the system understands")
	flags.IntVar(&s.memoryMiB, "memory", 3072, "the machine's memory in MiB")
	qemu := flags.String("qemu", "", "further arguments for QEMU, such as \"-bios /usr/share/ovmf/OVMF.fd\" for a system that starts by UEFI only")
	kargs := flags.String("kargs", "", "further kernel arguments of a system in a directory")
	console := flags.Bool("console", false, "show the machine's console")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 || s.image == "" {
		return errors.New("wrong arguments: -image is needed, and -help lists the others")
	}
	s.qemu, s.kargs = strings.Fields(*qemu), strings.Fields(*kargs)
	if *console {
		s.console = stderr
	}
	return s.run(ctx)
}

// notTried says what no case does, so that an "ok" does not stand for it. docs/dev/testing.md has the same list.
const notTried = "Not tried: first boots in the initramfs, failing first boots of others, packages, trials, later changes, power cuts, " +
	"hardware; for a system in a directory, its boot loader and labels."

func (s settings) run(ctx context.Context) (err error) {
	dir, err := os.MkdirTemp("", "hosttest-*")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	images, err := registry.Start(registry.Options{Dir: filepath.Join(dir, "blobs")})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, images.Close()) }()
	cases, err := s.cases(ctx, dir, images)
	if err != nil {
		return err
	}
	var failed []string
	for i, c := range cases {
		fmt.Fprintf(s.stdout, "=== %s\n", c.name)
		work := filepath.Join(dir, fmt.Sprint(i))
		if err := os.Mkdir(work, 0o755); err != nil {
			return err
		}
		holds, err := s.try(ctx, work, c, bootlab.Access(images, images.HostAs(bootlab.GuestHost)))
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		if !holds {
			failed = append(failed, c.name)
		}
		// A disk takes gigabytes.
		if err := os.RemoveAll(work); err != nil {
			return err
		}
	}
	fmt.Fprintln(s.stdout, notTried)
	if len(failed) > 0 {
		return fmt.Errorf("not as it should be: %s", strings.Join(failed, "; "))
	}
	return nil
}
