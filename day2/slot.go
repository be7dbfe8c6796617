package day2

import (
	"cmp"
	"context"
	"slices"
	"time"

	"machine-pivot/day2/slot"
	"machine-pivot/internal/machine"
	"machine-pivot/pivot"
)

// holder returns what takes and gives back this machine's slot of the fleet's lock.
func holder(m *machine.Machine) *slot.Holder {
	return &slot.Holder{Host: m.Host, Progress: m.Progress, Retry: m.Retry, Differences: m.Failures, Roots: m.FleetRoots}
}

// withSlot carries out a plan while the machine holds a slot of the fleet's lock, which it keeps
// over the reboot until it has proven itself. The slot is held as briefly as possible: everything
// that needs the network is done before.
func (m *move) withSlot(ctx context.Context, plan pivot.Plan) (changed bool, err error) {
	h := holder(m.Machine)
	link, err := h.Allow()
	if err != nil {
		return false, err
	}
	if plan, err = m.prefetch(ctx, plan); err != nil {
		return false, err
	}
	if err := m.checkSlotRelease(h, plan); err != nil {
		return false, err
	}
	if err := h.Take(ctx, m.settings.FleetLock, m.prepared.Until); err != nil {
		return false, m.prepared.windowClosed(ctx, err)
	}
	defer func() {
		if err != nil || !changed {
			h.GiveBackUnused(ctx)
		}
	}()
	if err := m.prepared.stillOpen(m.Machine); err != nil {
		return false, err
	}
	ask := pinned(plan)
	ask.Along, ask.Slot = append(slices.Clone(ask.Along), link), pivot.SlotTaken
	// The server may have let the machine wait for hours, so it is observed again.
	if plan, err = m.converger.Plan(ctx, ask); err != nil {
		return false, err
	}
	return m.carryOut(ctx, plan, m.converger.Decide(plan))
}

// prefetch pulls what a plan needs, unless it was downloaded before, and makes the move use it.
func (m *move) prefetch(ctx context.Context, plan pivot.Plan) (pivot.Plan, error) {
	if m.prepared.Downloaded {
		return plan, plan.Err()
	}
	var d pivot.Download
	plan, err := pull(ctx, m.converger, plan, &d)
	if err == nil {
		m.Pulled().Close()
		m.takeFrom(downloadedImages(m.Machine, d))
	}
	return plan, err
}

// checkSlotRelease returns an error if the new system of a plan could not give a slot back. Its
// image must be downloaded.
func (m *move) checkSlotRelease(h *slot.Holder, plan pivot.Plan) error {
	if !plan.Image.Changed {
		return nil
	}
	// A plan that pulled nothing does not know it.
	return h.CheckRelease(cmp.Or(plan.To().Image.Commit, recordedDownload(m.Machine).Image.Commit))
}

// ReleaseSlot gives the slot of the fleet's lock back once the machine has proven itself. It is
// the program of pivot-slot.service.
type ReleaseSlot struct {
	*machine.Machine
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
	if err := s.Open(); err != nil {
		return err
	}
	if s.Progress.Content.Slot == nil {
		return s.Progress.Journal.Save(s.Progress.Content) // removes a stale stamp
	}
	return holder(s.Machine).GiveBack(ctx, s.Force)
}
