package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"machine-pivot/day2"
	"machine-pivot/firstboot"
	"machine-pivot/internal/api"
	"machine-pivot/internal/cli"
	"machine-pivot/internal/disruption"
	"machine-pivot/internal/fault"
	"machine-pivot/internal/machine"
	"machine-pivot/internal/printable"
	"machine-pivot/pivot"
)

func planCommand() *cobra.Command {
	var flags rebaseFlags
	var out cli.Output
	var file string
	cmd := &cobra.Command{
		Use:   "plan [IMAGE]",
		Short: "Show what firstboot or rebase would change; write nothing",
		Long: "Show what firstboot would change or, if an image or changes are given, what rebase would change with the\n" +
			"same arguments. Nothing is written.",
		Example: "  pivot plan\n" +
			"  pivot plan registry.example/os@sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855 --append-karg nosmt -o yaml",
		RunE: func(cmd *cobra.Command, args []string) error {
			plan, err := makePlan(cmd, &flags, file, args)
			return printedPlan(cmd, out, plan, err)
		},
	}
	flags.add(cmd)
	out.Add(cmd, api.Plan)
	cmd.Flags().StringVar(&file, "machineconfig-file", firstboot.EncapsulatedPath, "read the encapsulated MachineConfig from `FILE`")
	return cmd
}

// printedPlan prints a plan, or returns the error of making it.
func printedPlan(cmd *cobra.Command, out cli.Output, plan pivot.Plan, err error) error {
	if err != nil {
		return err
	}
	return out.Write(cmd.OutOrStdout(), plan, func(w io.Writer) { printPlan(w, plan) })
}

// showWaits shows no events of a plan, except why it waits.
func (f *rebaseFlags) showWaits(cmd *cobra.Command, rebase *day2.Rebase) {
	log := f.hushed(newLog(cmd.ErrOrStderr()))
	rebase.Progress.Emit = func(e pivot.Event) {
		if e.Kind == pivot.EventWaiting {
			log.Warn(e.Message + ": " + e.Err.Error())
		}
	}
}

func makePlan(cmd *cobra.Command, flags *rebaseFlags, file string, args []string) (pivot.Plan, error) {
	rebase, err := flags.rebase(cmd, args)
	if err != nil {
		return pivot.Plan{}, err
	}
	flags.showWaits(cmd, rebase)
	// It is a manual plan only if something was requested on the command line: a file left by
	// the old tool does not count.
	if len(args)+len(flags.appended)+len(flags.deleted)+len(flags.cpusets)+len(flags.extensions) > 0 || flags.kernelType+flags.extensionsImage != "" {
		if !rebase.Asked() {
			return pivot.Plan{}, nothingAsked()
		}
		return rebase.Plan(cmd.Context(), day2.RunOptions{})
	}
	boot := firstboot.FirstBoot{Machine: rebase.Machine, File: file}
	if open, err := machine.OpenFirstBoot(boot.Host.Root); err == nil && open == "" && !cmd.Flags().Changed("machineconfig-file") {
		return pivot.Plan{}, fault.New(fault.Usage, "nothing to plan: no first boot waits here (there is no %s), and nothing is asked for", file).
			WithHint("give an IMAGE, --append-karg, --delete-karg, --cpuset, --kernel-type or --extension, as to rebase, or a --machineconfig-file")
	}
	return boot.Plan(cmd.Context())
}

func printPlan(w io.Writer, p pivot.Plan) {
	if !p.Changed {
		fmt.Fprintln(w, "nothing to change: the machine is what is asked for")
	}
	if p.Image.From != p.Image.To {
		fmt.Fprintf(w, "image\n  - %s\n  + %s\n", p.Image.From, p.Image.To)
	}
	if p.Kargs.Changed || len(p.Kargs.Respelled) > 0 {
		fmt.Fprintln(w, "kernel arguments")
		for _, arg := range p.Kargs.Deleted {
			fmt.Fprintln(w, "  - "+printable.Line(arg))
		}
		for _, arg := range p.Kargs.Appended {
			fmt.Fprintln(w, "  + "+printable.Line(arg))
		}
		for _, arg := range p.Kargs.Respelled {
			fmt.Fprintln(w, "  ~ "+printable.Line(arg)+" (there in another spelling)")
		}
	}
	printList(w, "files", p.Entries, pivot.EntryChange.What)
	printList(w, "units", p.Units, pivot.UnitChange.String)
	printList(w, "packages", p.Packages, func(c pivot.PackageChange) string { return string(c.Action) + " " + c.Name })
	printNeeds(w, p)
	for _, note := range p.Notes {
		fmt.Fprintln(w, "note: "+printable.Text(note))
	}
	fmt.Fprintf(w, "reboots: %d\n", p.Reboots)
}

// printNeeds prints why a plan needs a reboot, or otherwise what each change needs, and the
// actions on services.
func printNeeds(w io.Writer, p pivot.Plan) {
	if p.Reboots > 0 {
		printList(w, "why a reboot", p.RebootReasons(), itself)
	} else {
		printList(w, "without a reboot", p.Needs, pivot.Need.String)
	}
	if p.Drain != nil && p.Drain.Wanted && p.Reboots == 0 {
		printList(w, "after a drain of the node, in a cluster", p.Drain.Because, itself)
	}
	printList(w, "in this order", p.Actions, disruption.Action.String)
}

// printList prints a heading with the elements of a list below it; nothing if there are none.
func printList[T any](w io.Writer, heading string, list []T, line func(T) string) {
	if len(list) > 0 {
		fmt.Fprintln(w, heading)
	}
	for _, element := range list {
		fmt.Fprintln(w, "  "+printable.Line(line(element)))
	}
}

func itself(line string) string { return line }
