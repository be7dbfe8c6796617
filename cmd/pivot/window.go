package main

import (
	"time"

	"github.com/spf13/cobra"

	"machine-pivot/internal/cli"
	"machine-pivot/internal/fault"
	"machine-pivot/internal/machine"
	"machine-pivot/internal/settings"
	"machine-pivot/internal/window"
)

// windowFlags determine when a machine may be changed, and which FleetLock server must agree.
type windowFlags struct{ window, fleet string }

func (f *windowFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.window, "window", "", "download now, but change and reboot the machine only in the window `SPEC`, \"[DAYS] HH:MM-HH:MM [ZONE]\", or none for at any time (default: the machine's setting)")
	cmd.Flags().StringVar(&f.fleet, "fleetlock", "", "before a reboot, take a slot from the FleetLock server at `URL`; none takes no slot (default: the machine's setting)")
	cli.Suggest(cmd, "window", settings.None)
	cli.Suggest(cmd, "fleetlock", settings.None)
}

// use configures the machine's window and FleetLock server.
func (f *windowFlags) use(m *machine.Machine) error {
	if f.waits() {
		if _, err := window.Parse(f.window, time.Local); err != nil {
			return fault.New(fault.Usage, "cannot use --window: %w", err)
		}
	}
	if f.fleet != "" && f.fleet != settings.None {
		if err := settings.CheckFleetLockURL(f.fleet); err != nil {
			return fault.New(fault.Usage, "cannot use --fleetlock: %w", err)
		}
	}
	m.Window, m.FleetLock = f.window, f.fleet
	return nil
}

// waits reports whether the flags set a window, which implies a reboot within it.
func (f *windowFlags) waits() bool { return f.window != "" && f.window != settings.None }
