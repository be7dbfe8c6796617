package main

import (
	"time"

	"github.com/spf13/cobra"

	"machine-pivot/firstboot"
	"machine-pivot/internal/cli"
	"machine-pivot/internal/fault"
	"machine-pivot/internal/fleetlock"
	"machine-pivot/internal/host"
	"machine-pivot/internal/slot"
	"machine-pivot/internal/window"
)

// turnFlags determine when a machine may be changed, and which FleetLock server must agree.
type turnFlags struct{ window, fleet string }

func (f *turnFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.window, "window", "", "change and reboot the machine only within `SPEC`, \"[DAYS] HH:MM-HH:MM [ZONE]\", or none: download now, and wait (default: as the machine's settings say)")
	cmd.Flags().StringVar(&f.fleet, "fleetlock", "", "before a reboot take a slot of the FleetLock server at `URL`, or of none (default: as the machine's settings say)")
	cli.Suggest(cmd, "window", host.None)
	cli.Suggest(cmd, "fleetlock", host.None)
}

// use configures the machine's window and FleetLock server.
func (f *turnFlags) use(m *firstboot.Machine) error {
	if f.waits() {
		if _, err := window.Parse(f.window, time.Local); err != nil {
			return fault.New(fault.Usage, "cannot use --window: %w", err)
		}
	}
	if f.fleet != "" && f.fleet != host.None {
		if err := fleetlock.CheckURL(f.fleet); err != nil {
			return fault.New(fault.Usage, "cannot use --fleetlock: %w", err)
		}
	}
	m.Window, m.FleetLock = f.window, f.fleet
	return nil
}

// waits reports whether the flags set a window, which implies a reboot within it.
func (f *turnFlags) waits() bool { return f.window != "" && f.window != host.None }

// inTurn runs a move when the machine may be changed. If nothing had to change, the exit status
// is 77 with --unchanged-exit-77.
func inTurn(cmd *cobra.Command, m *firstboot.Machine, unchanged77 bool, move firstboot.Move) error {
	changed, err := m.InWindow(cmd.Context(), move, func(run func() error) error { return withLock(m.Host, run) })
	if err == nil && !changed && unchanged77 {
		return cli.ExitStatus(exitUnchanged)
	}
	return err
}

func releaseSlotCommand() *cobra.Command {
	var flags hostFlags
	var force bool
	cmd := &cobra.Command{
		Use:   "release-slot",
		Short: "Give the slot of the fleet's lock back, when the machine has proven itself; for " + slot.Unit,
		Long: "Give the slot of the fleet's lock back, when the machine has proven itself: what runs is what was asked for, the\n" +
			"units of the setting \"health\" are active, and no trial goes on. As long as that is not so, or the server is away,\n" +
			"it is tried again; then the status is 69.",
		Example: "  pivot release-slot\n  pivot release-slot --force",
		Args:    cli.Usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			machine, err := flags.machine(cmd)
			if err != nil {
				return err
			}
			release := firstboot.ReleaseSlot{Machine: machine, Force: force}
			return reported(release.Run(cmd.Context()))
		},
	}
	flags.addRoot(cmd)
	flags.addRetry(cmd)
	cmd.Flags().BoolVar(&force, "force", false, "give it back though the machine has not proven itself")
	return cmd
}
