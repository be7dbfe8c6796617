package main

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"machine-pivot/day2"
	"machine-pivot/internal/api"
	"machine-pivot/internal/cli"
	"machine-pivot/internal/fault"
	"machine-pivot/internal/hostfiles"
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
	var into string
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Compare the booted system with the requested state; print one line per difference",
		Long: "Compare the booted system with the requested state; print one line per difference. The exit status is 65 if\n" +
			"anything differs. With --watch, compare again as soon as something happens to a relevant file, and every five\n" +
			"minutes, and log changes of the differences. The watch ends when it is stopped (SIGTERM); then it prints the\n" +
			"differences of the last comparison. With --into, a program can follow it: whenever the differences have\n" +
			"changed, FILE is replaced by the JSON document of -o json.",
		Example: "  pivot verify\n  pivot verify -o json\n  pivot verify --watch --until-drift\n  pivot verify --watch --into /run/drift.json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if (untilDrift || into != "") && !watch {
				return fault.New(fault.Usage, "--until-drift and --into are for --watch")
			}
			m, err := flags.machine(cmd)
			if err != nil {
				return err
			}
			var found verified
			if watch {
				w := flags.watch(cmd, m, into)
				w.UntilDrift = untilDrift
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
	cmd.Flags().StringVar(&into, "into", "", "with --watch: replace `FILE` whenever the differences have changed")
	return cmd
}

// verified is the JSON form of a comparison.
type verified struct {
	OK          bool               `json:"ok"`    // nothing differs
	Phase       pivot.Phase        `json:"phase"` // of the transaction that has this target
	Differences []pivot.Difference `json:"differences"`
}

// complete adds what is not in the differences of a machine that was compared.
func (v *verified) complete(m *machine.Machine) {
	v.OK, v.Phase = len(v.Differences) == 0, m.Progress.Content.Phase
	v.Differences = append([]pivot.Difference{}, v.Differences...)
}

// watch returns a Watch that watches the machine and logs differences. If into is a file, it has their newest
// document.
func (f *hostFlags) watch(cmd *cobra.Command, m *machine.Machine, into string) *day2.Watch {
	log, _ := f.logTo(cmd.ErrOrStderr())
	drift := status.Drift{Log: log, Notify: notify, Now: time.Now}
	if settings, err := m.Host.Settings(); err == nil && settings.Metrics != "" {
		drift.Metrics = m.Host.Path(strings.TrimSuffix(settings.Metrics, ".prom") + "-drift.prom")
	}
	w := &day2.Watch{Machine: m, Every: compareEvery, Tell: drift.Tell}
	if into == "" {
		return w
	}
	file := verifiedFile{path: into}
	w.Tell = func(differences []string) {
		drift.Tell(differences)
		found := verified{Differences: w.Found}
		found.complete(m)
		if err := file.keep(found); err != nil {
			log.WithError(err).Warn("cannot keep the differences in the file of --into; tries again after the next comparison")
		}
	}
	return w
}

// verifiedFile is a file with the newest comparison. Only root can read it: a difference may name what is
// secret.
type verifiedFile struct {
	path string
	kept []byte
}

// keep replaces the file, unless it has the comparison already.
func (f *verifiedFile) keep(found verified) error {
	document, err := api.MarshalIndent(api.Verify, found)
	if err != nil || bytes.Equal(document, f.kept) {
		return err
	}
	if err := hostfiles.ReplaceNamed(hostfiles.OS{}, f.path, document, 0o600); err != nil {
		return err
	}
	f.kept = document
	return nil
}
