package main

import (
	"context"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"machine-pivot/internal/cli"
	"machine-pivot/internal/fault"
	"machine-pivot/internal/host"
	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/input"
	"machine-pivot/internal/status"
	"machine-pivot/pivot"
)

// plotFlags select the journal and the transaction to plot.
type plotFlags struct {
	root    string
	journal string // a file, or "-"; "": the machine's journal
	before  int
	format  string
}

func plotCommand() *cobra.Command {
	var flags plotFlags
	cmd := &cobra.Command{
		Use:   "plot",
		Short: "Draw boots, steps and failures of the last transaction as an SVG timeline",
		Long: `Draw the last transaction as an SVG timeline: each boot, starting with its firmware, each step of pivot, the
data transferred, and each failed try. The picture is written to standard output.`,
		Example: `  pivot plot >firstboot.svg
  ssh core@node cat /var/lib/pivot/journal.json | pivot plot --journal - >node.svg`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			timeline, err := flags.timeline(cmd)
			if err != nil {
				return err
			}
			return timeline.SVG(cmd.OutOrStdout())
		},
	}
	cli.AddRoot(cmd, &flags.root)
	cmd.Flags().StringVar(&flags.journal, "journal", "", "read the journal.json of another machine from `FILE`; - is standard input")
	cmd.Flags().IntVar(&flags.before, "before", 0, "draw the transaction `N` before the last one")
	flags.format = "svg"
	cli.OneOf{Value: &flags.format, Allowed: []string{"svg"}}.AddP(cmd, "output", "o", "picture format")
	return cmd
}

func (f *plotFlags) timeline(cmd *cobra.Command) (status.Timeline, error) {
	if f.before < 0 {
		return status.Timeline{}, fault.New(fault.Usage, "cannot plot the transaction %d before the last: the number is below 0", f.before)
	}
	if f.journal != "" {
		journal, err := f.read(cmd.Context(), cmd.InOrStdin())
		if err != nil {
			return status.Timeline{}, err
		}
		return status.TimelineOf(journal, f.before)
	}
	if err := cli.CheckRoot(f.root); err != nil {
		return status.Timeline{}, err
	}
	journal, err := pivot.JournalIn(f.root).Load()
	if err != nil {
		return status.Timeline{}, err
	}
	unwritten := f.before == 0 && f.addUnwritten(cmd, &journal)
	timeline, err := status.TimelineOf(journal, f.before)
	if err != nil {
		return status.Timeline{}, err
	}
	if unwritten {
		timeline.Image = "ended before anything was changed"
	}
	// The units that wait for a first boot; see systemd-units.
	timeline.AddUnits(host.New(f.root).BootTimes(cmd.Context()).ID, host.UnitTimes(cmd.Context(), "crio.service", "kubelet.service"))
	return timeline, nil
}

// addUnwritten replaces the record by the last run of this boot, if that failed before it wrote
// the journal, and reports whether it did. Only the status of this boot tells of such a run.
func (f *plotFlags) addUnwritten(cmd *cobra.Command, journal *pivot.JournalContent) bool {
	now, err := host.New(f.root).Start()
	if err != nil {
		return false
	}
	s, err := status.Read(f.root, now)
	if err != nil || s.Error == nil {
		return false
	}
	steps := slices.DeleteFunc(s.Phases, func(d pivot.Duration) bool {
		return slices.ContainsFunc(journal.Phases, func(known pivot.Duration) bool {
			return known.Name == d.Name && known.BootID == d.BootID && known.At == d.At && known.Seconds == d.Seconds
		})
	})
	failed := slices.ContainsFunc(steps, func(d pivot.Duration) bool {
		return slices.ContainsFunc(d.Tries, func(t pivot.Try) bool { return t.Last })
	})
	if !failed {
		return false
	}
	*journal = pivot.JournalContent{Phase: pivot.PhaseFailed, Error: s.Error, Phases: steps, Boots: []pivot.Boot{host.New(f.root).BootTimes(cmd.Context())}}
	return true
}

// read reads the journal that --journal names.
func (f *plotFlags) read(ctx context.Context, in io.Reader) (pivot.JournalContent, error) {
	data, err := input.File{What: "the journal", Path: f.journal, Max: hostfiles.MaxState, Stdin: in}.Read(ctx)
	if err != nil {
		return pivot.JournalContent{}, fault.New(fault.BadInput, "%w", err).WithHint("name a journal.json of pivot")
	}
	return pivot.Journal{Path: f.journal}.Parse(data)
}
