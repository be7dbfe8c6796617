package slot

import (
	"context"
	"fmt"
	"strings"

	"machine-pivot/internal/fault"
	"machine-pivot/pivot"
)

// GiveBack releases the journal's slot. Without force it returns an error if the slot is still
// needed.
func (h *Holder) GiveBack(ctx context.Context, force bool) error {
	if !force {
		why, err := h.needed(ctx)
		if err != nil {
			return err
		}
		if why != "" {
			return fault.New(fault.Unavailable, "this machine still holds the FleetLock server's permission to reboot: %s", why).
				WithHint("correct that, and pivot gives it back; pivot release-slot --force gives it back at once")
		}
	}
	return h.unlock(ctx)
}

// unlock releases the journal's slot, if there is one.
func (h *Holder) unlock(ctx context.Context) error {
	slot, err := In(h.Progress.Content)
	if err != nil || slot == nil {
		return err
	}
	if err := h.client(*slot).unlock(ctx); err != nil {
		return fmt.Errorf("cannot give the slot of group %s back: %w", slot.Group, err)
	}
	if err := h.Progress.Amend(func(r *pivot.JournalContent) error { r.DropPart(Name); return nil }); err != nil {
		return err
	}
	h.Progress.Note("the slot of the fleet's lock is given back")
	return nil
}

// GiveBackUnused releases a slot that was taken for a change that has failed. After a commit the
// slot is kept, since the machine may reboot at any time.
func (h *Holder) GiveBackUnused(ctx context.Context) {
	ctx = context.WithoutCancel(ctx)
	why, err := h.needed(ctx)
	if err == nil && why == "" {
		err = h.unlock(ctx)
	}
	switch {
	case err != nil:
		h.Progress.Note(fmt.Sprintf("%v; %s tries it again", err, Unit))
	case why != "":
		h.Progress.Note("the slot of the fleet's lock stays: " + why)
	}
}

// needed returns why the journal's slot cannot be released yet; "" if it can.
func (h *Holder) needed(ctx context.Context) (why string, err error) {
	journal := h.Progress.Content
	slot, err := In(journal)
	if err != nil || slot == nil {
		return "", err
	}
	state, err := h.Host.Observe(ctx, journal.Target)
	if err != nil {
		return "", err
	}
	switch slot.Judge(journal, state.BootID, state.Pending()) {
	case Tried:
		return "the new system is on trial", nil
	case Waits:
		return "deployment " + state.Default.ID() + " is committed and waits for its reboot", nil
	case Proves:
		lacks, err := h.Differences(ctx)
		return strings.Join(append(lacks, h.Host.Unhealthy(ctx)...), "; "), err
	}
	return "", nil
}
