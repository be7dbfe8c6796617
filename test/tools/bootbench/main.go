// Command bootbench measures whole first boots in QEMU or in a box, from power-on to kubelet's start on the last boot,
// by the machine-config-daemon and by pivot in its modes. All begin with the same disk and get the same image from the
// same registry, in turns. "make bench-boot" runs it; docs/dev/benchmark.md describes what is measured and how.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"machine-pivot/test/tools/figures"
	"machine-pivot/test/tools/tool"
	"machine-pivot/test/worlds/vm"
)

func main() { os.Exit(tool.Run("bootbench", command)) }

// options are the options of a run.
type options struct {
	source   string // the root of this project's checkout
	rounds   int
	cuts     int   // how many power cuts of each way's first boot are tried
	tool     int64 // size of the tool image's files in bytes
	more     int64 // size of the files that B has more than the guest's system, in bytes
	ways     []way
	box      bool // the machines boot in boxes (package box), in native time
	layout   vm.Layout
	pictures string    // directory for the pictures; "": none
	console  io.Writer // for the machines' consoles
	log      io.Writer
}

// say logs the progress.
func (s options) say(format string, args ...any) { fmt.Fprintf(s.log, format+"\n", args...) }

func command(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	s := options{source: ".", tool: 300e6, more: 300e6, console: io.Discard, log: stderr, layout: vm.Layout{Root: vm.XFS, SeparateBoot: true}}
	flags := flag.NewFlagSet("bootbench", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.IntVar(&s.rounds, "rounds", 3, "how often each way is measured")
	size := func(to *int64, name, usage string) {
		flags.Func(name, usage, func(text string) (err error) {
			if text == "0" && to == &s.more { // a tool image without files is none
				*to = 0
				return nil
			}
			*to, err = figures.ParseSize(text)
			return err
		})
	}
	size(&s.tool, "tool", "size of the files in the tool image of today's way (default 300MB)")
	size(&s.more, "more", "size of the files that the OS image has in addition to the guest's system; without them, the machine has most objects already (default 300MB)")
	flags.BoolVar(&s.box, "box", false, "boot in boxes, without emulation: only the ways that need no kernel and no initramfs of the guest")
	chosen := ""
	flags.StringVar(&chosen, "ways", "", "the ways to measure, separated by commas: "+strings.Join(names(ways()), ", ")+" (default: all but "+enterName+", with which B has the kernel, initramfs and kernel arguments of A)")
	flags.IntVar(&s.cuts, "cuts", 0, "how many power cuts at random moments of a first boot of each way are tried after the measurements")
	ext4 := flags.Bool("ext4", false, "one ext4 file system instead of RHCOS's layout: /boot of its own, XFS")
	flags.StringVar(&s.pictures, "pictures", "bin/bootbench", "directory for a picture of each way's first boot")
	console := flags.Bool("console", false, "show the machines' consoles")
	output := flags.String("o", "text", "text or json")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 || s.rounds < 0 || s.cuts < 0 || s.rounds == 0 && s.cuts == 0 || *output != "text" && *output != "json" {
		return errors.New("wrong arguments; -help lists them")
	}
	var err error
	if s.ways, err = waysFor(s.box, chosen); err != nil {
		return err
	}
	if *console {
		s.console = stderr
	}
	if *ext4 {
		s.layout = vm.Layout{}
	}
	r, err := s.run(ctx)
	if err != nil {
		return err
	}
	if *output == "json" {
		out := json.NewEncoder(stdout)
		out.SetIndent("", "  ")
		return out.Encode(r)
	}
	return r.print(stdout)
}

// names returns the names of ways.
func names(ways []way) (all []string) {
	for _, w := range ways {
		all = append(all, w.name)
	}
	return all
}

// waysFor returns the ways with the given names, separated by commas, in the order of ways; without names the usual
// ones. In a box it returns only those that work there.
func waysFor(inBox bool, wanted string) (found []way, err error) {
	if wanted == "" {
		return usual(ways(), inBox), nil
	}
	chosen := strings.Split(wanted, ",")
	for _, name := range chosen {
		if !slices.Contains(names(ways()), name) {
			return nil, fmt.Errorf("there is no way %q", name)
		}
	}
	for _, w := range ways() {
		if !slices.Contains(chosen, w.name) {
			continue
		}
		if inBox && !w.boxed() {
			return nil, fmt.Errorf("%s cannot be measured in a box: it needs the guest's own kernel and initramfs", w.name)
		}
		found = append(found, w)
	}
	return found, nil
}
