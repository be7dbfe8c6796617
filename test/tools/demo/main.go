// Command demo shows pivot's main task live on machines in boxes (package box). An OS A boots, finds an encapsulated
// MachineConfig, pivots with one reboot to its successor B, an image with derived layers, and proves it. Other machines
// are refused and corrected, and lose their power during the commit. Then the first one tries a system and returns, and
// changes from one MachineConfig to another without a reboot, with one, and back. "make demo" runs it. With the
// argument "vm" it shows the first boot and the changes in QEMU ("make demo-vm"), and with "enter" a first boot without
// a reboot ("make demo-enter").
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"

	"machine-pivot/test/box"
	"machine-pivot/test/tools/tool"
	"machine-pivot/test/worlds/bootlab"
	"machine-pivot/test/worlds/recorded"
)

func main() { os.Exit(tool.Run("demo", command)) }

func command(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("demo", flag.ContinueOnError)
	flags.SetOutput(stderr)
	before := flags.String("before", "", "what took how long before: `NAME=SECONDS`, separated by commas")
	if err := flags.Parse(args); err != nil {
		return err
	}
	kind := flags.Arg(0)
	if missing := lacking(kind); len(missing) > 0 {
		return fmt.Errorf("cannot boot a machine here: lacking %s (run make demo as root on Debian: it installs the programs)", strings.Join(missing, ", "))
	}
	parts, err := newParts(*before)
	if err != nil {
		return err
	}
	s := &show{w: stdout, claims: &bootlab.Claims{To: stdout}, parts: parts}
	switch kind {
	case "enter":
		return s.enter(ctx)
	case "vm":
		return s.demo(ctx, s.dayTwo)
	}
	s.boxed = true
	return s.demo(ctx, s.refused, s.powerCut, s.trial, s.dayTwo)
}

// lacking returns what this host lacks for a kind of demonstration.
func lacking(kind string) []string {
	if kind != "" {
		return bootlab.Missing()
	}
	return append(append(box.Missing(), bootlab.MissingInBox()...), recorded.MissingToExport()...)
}
