package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"machine-pivot/firstboot"
	"machine-pivot/internal/cli"
	"machine-pivot/internal/fault"
	"machine-pivot/internal/printable"
	"machine-pivot/internal/status"
)

// compareEvery is the interval of comparisons by verify --watch if no file changes.
const compareEvery = 5 * time.Minute

func verifyCommand() *cobra.Command {
	var flags hostFlags
	var watch, untilDrift bool
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Compare the booted system with the requested state; print one line per difference",
		Long: "Compare the booted system with the requested state; print one line per difference. The exit status is 65 if\n" +
			"anything differs. With --watch, compare again as soon as something happens to a relevant file, and every five\n" +
			"minutes, and log changes of the differences. The watch ends when it is stopped (SIGTERM); then it prints the\n" +
			"differences of the last comparison.",
		Example: "  pivot verify\n  pivot verify --watch --until-drift",
		Args:    cli.Usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if untilDrift && !watch {
				return fault.New(fault.Usage, "--until-drift is for --watch")
			}
			machine, err := flags.machine(cmd)
			if err != nil {
				return err
			}
			look := machine.Verify
			if watch {
				look = flags.watch(cmd, machine, untilDrift).Run
			}
			differences, err := look(cmd.Context())
			if err != nil {
				return err
			}
			for _, d := range differences {
				fmt.Fprintln(cmd.OutOrStdout(), printable.Line(d))
			}
			if len(differences) > 0 {
				return cli.ExitStatus(fault.BadInput.ExitStatus())
			}
			return nil
		},
	}
	flags.addRoot(cmd)
	cmd.Flags().BoolVar(&watch, "watch", false, "compare again whenever something happens, and log drift")
	cmd.Flags().BoolVar(&untilDrift, "until-drift", false, "with --watch: exit as soon as something differs")
	return cmd
}

// watch returns a Watch that watches the machine and logs differences.
func (f *hostFlags) watch(cmd *cobra.Command, machine firstboot.Machine, untilDrift bool) *firstboot.Watch {
	log, _ := f.logTo(cmd.ErrOrStderr())
	drift := status.Drift{Log: log, Notify: notify, Now: time.Now}
	if settings, err := machine.Host.Settings(); err == nil && settings.Metrics != "" {
		drift.Metrics = machine.Host.Path(strings.TrimSuffix(settings.Metrics, ".prom") + "-drift.prom")
	}
	return &firstboot.Watch{Machine: machine, Every: compareEvery, UntilDrift: untilDrift, Tell: drift.Tell}
}
