package firstboot

import (
	"context"
	"time"

	"machine-pivot/internal/host"
	"machine-pivot/internal/slot"
	"machine-pivot/pivot"
)

// slotHolder takes and gives back this machine's slot of the fleet's lock.
func (m *Machine) slotHolder() *slot.Holder {
	return &slot.Holder{Host: m.Host, Progress: m.Progress, Retry: m.Retry, Differences: m.differences, Roots: m.FleetRoots}
}

// inTurn changes the machine, with a reboot, when the fleet lets it. A slot is held for as
// short as can be: what needs the network is done before, and the change then asks no
// registry. It is held over the reboot, until the machine has proven itself.
func (m *Machine) inTurn(ctx context.Context, fleet host.FleetLock, ask pivot.Ask, change func(pivot.Ask) (bool, error)) (changed bool, err error) {
	holder := m.slotHolder()
	link, err := holder.Allow()
	if err != nil {
		return false, err
	}
	ask.Entries = append(ask.Entries, link)
	plan, err := m.fetched(ctx, ask)
	if err != nil {
		return false, err
	}
	if plan.Changed {
		if err := m.acceptSlot(holder, plan); err != nil {
			return false, err
		}
		if err := holder.Take(ctx, fleet, m.closes); err != nil {
			return false, m.inTime(ctx, err)
		}
	}
	changed, err = change(ask)
	if plan.Changed && (err != nil || !changed) {
		holder.GiveBackUnused(ctx)
	}
	return changed, err
}

// fetched pulls what is asked for, unless that was downloaded before, and makes it what the
// machine is changed by.
func (m *Machine) fetched(ctx context.Context, ask pivot.Ask) (pivot.Plan, error) {
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

// acceptSlot is an error if the new system of a plan, whose image is downloaded, could not give a
// slot back.
func (m *Machine) acceptSlot(holder *slot.Holder, plan pivot.Plan) error {
	if !plan.Image.Changed {
		return nil
	}
	commit := plan.To().Image.Commit
	if commit == "" { // a plan does not know it
		commit = m.hasDownloaded().Image.Commit
	}
	return holder.Accept(commit)
}

// ReleaseSlot gives the slot of the fleet's lock back, when the machine has proven itself: the
// program of pivot-slot.service.
type ReleaseSlot struct {
	Machine
	Force bool // also if it has not
}

// Run returns when there is no slot any more. It fails, to be run again, as long as the machine
// has not proven itself, or the server is away.
func (s *ReleaseSlot) Run(ctx context.Context) error {
	// Between two tries another pivot may be at work, such as one that confirms a trial.
	wait := func(ctx context.Context) error { return s.Retry.Pause(ctx, 5*time.Second) }
	err := s.Retry.Do(ctx, s.Progress.Waiting, func(ctx context.Context) error {
		return s.Host.WithLock(ctx, wait, func() error { return s.attempt(ctx) })
	})
	if err != nil && ctx.Err() == nil {
		s.Progress.Fail(err)
	}
	return err
}

func (s *ReleaseSlot) attempt(ctx context.Context) error {
	if err := s.open(); err != nil {
		return err
	}
	if s.Progress.Record.Slot == nil {
		return s.Progress.Journal.Save(s.Progress.Record) // without its stamp
	}
	return s.slotHolder().GiveBack(ctx, s.Force)
}
