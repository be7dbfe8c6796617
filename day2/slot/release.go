package slot

import (
	"context"
	"time"

	"machine-pivot/internal/machine"
)

const force = "force"

// release returns the command that Unit runs.
func release() machine.Command {
	return machine.Command{
		Name:  "release-slot",
		Short: "Release the FleetLock slot after a reboot; run by " + Unit,
		Long: "Release the FleetLock slot when the system has proven itself: it matches the target, the units of the\n" +
			"setting \"health\" are active, and no trial is running. Until then, or while the server is unavailable,\n" +
			"the command retries for up to --retry-for, and then exits with status 69.",
		Example:  "  pivot release-slot\n  pivot release-slot --force",
		Retries:  true,
		Switches: []machine.Switch{{Name: force, Usage: "release it even if the system has not proven itself"}},
		Run: func(ctx context.Context, m *machine.Machine, on map[string]bool) error {
			return Release(ctx, m, on[force])
		},
	}
}

// Release gives the slot of the fleet's lock back once the machine has proven itself, or, with force, in any case. It
// returns nil when the machine has no slot any more. It returns an error, and must be run again, if the machine has not
// proven itself or the server cannot be reached.
func Release(ctx context.Context, m *machine.Machine, force bool) error {
	// Between two tries another pivot may take the lock, for example to confirm a trial.
	wait := func(ctx context.Context) error { return m.Retry.Pause(ctx, 5*time.Second) }
	err := m.Retry.Do(ctx, m.Progress.Waiting, func(ctx context.Context) error {
		return m.Host.WithLock(ctx, wait, func() error { return releaseOnce(ctx, m, force) })
	})
	if err == nil || ctx.Err() == nil {
		m.Progress.End(err)
	}
	return err
}

func releaseOnce(ctx context.Context, m *machine.Machine, force bool) error {
	if err := m.Open(); err != nil {
		return err
	}
	slot, err := In(m.Progress.Content)
	if err == nil && slot == nil {
		return m.Progress.Journal.Unstamp(Name)
	}
	if err != nil {
		return err
	}
	return holder(m).GiveBack(ctx, force)
}
