package main

import (
	"context"

	"github.com/spf13/cobra"

	"machine-pivot/day2"
	"machine-pivot/internal/cli"
	"machine-pivot/internal/host"
	"machine-pivot/internal/machine"
)

// changeFlags are the flags of the commands that make a move: they say how it is made.
type changeFlags struct {
	download            downloadFlags
	window              windowFlags
	dryRun, unchanged77 bool
}

func (f *changeFlags) add(cmd *cobra.Command) {
	addFeatureFlags(cmd)
	f.download.add(cmd)
	f.window.add(cmd)
	cmd.Flags().BoolVar(&f.dryRun, "dry-run", false, "show what would change, like \"pivot plan\"; write nothing")
	cmd.Flags().BoolVar(&f.unchanged77, "unchanged-exit-77", false, "exit with status 77 if no change was needed")
}

// use gives a machine the flags of features. It returns the name of one that asks for a reboot; "" if none does.
func (f *changeFlags) use(cmd *cobra.Command, m *machine.Machine) (reboots string, err error) {
	if reboots, err = useFeatureFlags(cmd, m); err == nil {
		err = f.window.use(m)
	}
	return reboots, err
}

// exitUnchanged is the exit status if nothing had to change, with --unchanged-exit-77.
const exitUnchanged = 77

// carryOut makes a move when the machine may be changed, or only shows what it would change, or only
// downloads what it needs.
func (f *changeFlags) carryOut(cmd *cobra.Command, results *results, m *machine.Machine, move day2.Move) error {
	switch {
	case f.dryRun:
		plan, err := move.Plan(cmd.Context(), day2.RunOptions{Downloaded: f.download.from})
		return results.printedPlan(cmd, plan, err)
	case f.download.only:
		return f.withLock(m.Host, func() (bool, error) {
			d, err := move.Download(cmd.Context())
			return d.New, err
		})
	}
	return f.changed(m.Host, func() (bool, error) {
		return day2.Carry(cmd.Context(), m, move, f.download.from, func(run func() error) error { return withLock(m.Host, run) })
	})
}

// withLock calls run, which reports whether anything had to change, while it holds the lock of a
// machine that can be changed.
func (f *changeFlags) withLock(h *host.Host, run func() (changed bool, err error)) error {
	return f.changed(h, func() (changed bool, err error) {
		err = withLock(h, func() (err error) {
			changed, err = run()
			return err
		})
		return changed, err
	})
}

// finish finishes an interrupted change of the running system. pivot-live.service does that on each boot.
func (f *changeFlags) finish(ctx context.Context, m *machine.Machine) error {
	return f.changed(m.Host, func() (changed bool, err error) {
		err = withBootLock(ctx, m.Host, func() error {
			return reporting(func() (err error) {
				changed, err = day2.Finish(ctx, m)
				return err
			})
		})
		return changed, err
	})
}

// changed calls run on a machine that can be changed. If nothing had to change, the exit status is 77
// with --unchanged-exit-77.
func (f *changeFlags) changed(h *host.Host, run func() (changed bool, err error)) error {
	if err := h.CheckBooted(); err != nil {
		return err
	}
	changed, err := run()
	if err == nil && !changed && f.unchanged77 {
		return cli.ExitStatus(exitUnchanged)
	}
	return err
}
