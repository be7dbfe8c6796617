package firstboot

import (
	"context"
	"time"

	"machine-pivot/day2/slot"
	"machine-pivot/internal/host"
	"machine-pivot/pivot"
)

// slotHolder returns what takes and gives back this machine's slot of the fleet's lock.
func (m *Machine) slotHolder() *slot.Holder {
	return &slot.Holder{Host: m.Host, Progress: m.Progress, Retry: m.Retry, Differences: m.failures, Roots: m.FleetRoots}
}

// withSlot changes the machine, with a reboot, while it holds a slot of the fleet's lock. The
// slot is held as briefly as possible: everything that needs the network is done before, and
// change then asks no registry. The machine keeps the slot over the reboot, until it has
// proven itself.
func (m *Machine) withSlot(ctx context.Context, fleet host.FleetLock, ask pivot.Ask, change func(pivot.Ask) (bool, error)) (changed bool, err error) {
	holder := m.slotHolder()
	link, err := holder.Allow()
	if err != nil {
		return false, err
	}
	ask.Entries = append(ask.Entries, link)
	plan, err := m.prefetch(ctx, ask)
	if err != nil {
		return false, err
	}
	if plan.Changed {
		if err := m.checkSlotRelease(holder, plan); err != nil {
			return false, err
		}
		if err := holder.Take(ctx, fleet, m.windowEnd); err != nil {
			return false, m.asWindowClosed(ctx, err)
		}
	}
	changed, err = change(ask)
	if plan.Changed && (err != nil || !changed) {
		holder.GiveBackUnused(ctx)
	}
	return changed, err
}

// prefetch pulls what is asked for, unless it was downloaded before, and makes the change use
// it.
func (m *Machine) prefetch(ctx context.Context, ask pivot.Ask) (pivot.Plan, error) {
	if m.FromDownloaded {
		return m.converger().Plan(ctx, ask)
	}
	var d pivot.Download
	plan, err := m.pullAsked(ctx, ask, &d)
	if err == nil {
		m.pulledImages().Close()
		m.useDownloaded(d)
	}
	return plan, err
}

// checkSlotRelease returns an error if the new system of a plan could not give a slot back. Its
// image must be downloaded.
func (m *Machine) checkSlotRelease(holder *slot.Holder, plan pivot.Plan) error {
	if !plan.Image.Changed {
		return nil
	}
	commit := plan.To().Image.Commit
	if commit == "" { // not known to a plan that pulled nothing
		commit = m.recordedDownload().Image.Commit
	}
	return holder.Accept(commit)
}

// ReleaseSlot gives the slot of the fleet's lock back once the machine has proven itself. It is
// the program of pivot-slot.service.
type ReleaseSlot struct {
	Machine
	Force bool // give it back even if the machine has not proven itself
}

// Run returns nil when the machine has no slot any more. It returns an error, and must be run
// again, if the machine has not proven itself or the server cannot be reached.
func (s *ReleaseSlot) Run(ctx context.Context) error {
	// Between two tries another pivot may take the lock, for example to confirm a trial.
	wait := func(ctx context.Context) error { return s.Retry.Pause(ctx, 5*time.Second) }
	err := s.Retry.Do(ctx, s.Progress.Waiting, func(ctx context.Context) error {
		return s.Host.WithLock(ctx, wait, func() error { return s.attempt(ctx) })
	})
	if err == nil || ctx.Err() == nil {
		s.Progress.End(err)
	}
	return err
}

func (s *ReleaseSlot) attempt(ctx context.Context) error {
	if err := s.open(); err != nil {
		return err
	}
	if s.Progress.Record.Slot == nil {
		return s.Progress.Journal.Save(s.Progress.Record) // removes a stale stamp
	}
	return s.slotHolder().GiveBack(ctx, s.Force)
}
