package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"machine-pivot/day2"
	"machine-pivot/internal/api"
	"machine-pivot/internal/cli"
	"machine-pivot/internal/fault"
	"machine-pivot/internal/machine"
	"machine-pivot/internal/printable"
	"machine-pivot/internal/status"
	"machine-pivot/pivot"
)

// compareEvery is the interval of comparisons by verify --watch if no file changes.
const compareEvery = 5 * time.Minute

func verifyCommand() *cobra.Command {
	var flags hostFlags
	var out cli.Output
	var watch, untilDrift bool
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Compare the booted system with the requested state; print one line per difference",
		Long: "Compare the booted system with the requested state; print one line per difference. The exit status is 65 if\n" +
			"anything differs. With --watch, compare again as soon as something happens to a relevant file, and every five\n" +
			"minutes, and log changes of the differences. The watch ends when it is stopped (SIGTERM); then it prints the\n" +
			"differences of the last comparison.",
		Example: "  pivot verify\n  pivot verify -o json\n  pivot verify --watch --until-drift",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if untilDrift && !watch {
				return fault.New(fault.Usage, "--until-drift is for --watch")
			}
			m, err := flags.machine(cmd)
			if err != nil {
				return err
			}
			var found verified
			if watch {
				w := flags.watch(cmd, m, untilDrift)
				_, err = w.Run(cmd.Context())
				found.Differences = w.Found
			} else {
				found.Differences, err = m.Verify(cmd.Context())
			}
			if err != nil {
				return err
			}
			found.complete(m)
			err = out.Write(cmd.OutOrStdout(), found, func(w io.Writer) {
				for _, d := range found.Differences {
					fmt.Fprintln(w, printable.Line(d.Message))
				}
			})
			if err == nil && !found.OK {
				err = cli.ExitStatus(fault.BadInput.ExitStatus())
			}
			return err
		},
	}
	flags.addRoot(cmd)
	out.Add(cmd, api.Verify)
	cmd.Flags().BoolVar(&watch, "watch", false, "compare again whenever something happens, and log drift")
	cmd.Flags().BoolVar(&untilDrift, "until-drift", false, "with --watch: exit as soon as something differs")
	return cmd
}

// verified is the JSON form of a comparison.
type verified struct {
	OK          bool               `json:"ok"`    // nothing differs
	Phase       pivot.Phase        `json:"phase"` // of the transaction whose target this is
	Differences []pivot.Difference `json:"differences"`
}

// complete adds what is not in the differences of a machine that was compared.
func (v *verified) complete(m *machine.Machine) {
	v.OK, v.Phase = len(v.Differences) == 0, m.Progress.Content.Phase
	v.Differences = append([]pivot.Difference{}, v.Differences...)
}

// watch returns a Watch that watches the machine and logs differences.
func (f *hostFlags) watch(cmd *cobra.Command, m *machine.Machine, untilDrift bool) *day2.Watch {
	log, _ := f.logTo(cmd.ErrOrStderr())
	drift := status.Drift{Log: log, Notify: notify, Now: time.Now}
	if settings, err := m.Host.Settings(); err == nil && settings.Metrics != "" {
		drift.Metrics = m.Host.Path(strings.TrimSuffix(settings.Metrics, ".prom") + "-drift.prom")
	}
	return &day2.Watch{Machine: m, Every: compareEvery, UntilDrift: untilDrift, Tell: drift.Tell}
}
