package slot

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"time"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/osimage/source"
	"machine-pivot/internal/retry"
	"machine-pivot/internal/settings"
	"machine-pivot/pivot"
)

// Take waits until the FleetLock server grants a slot. Other machines hold theirs for as long as
// their reboots take, so the only time limit is closes; there is none if closes is zero.
func (h *Holder) Take(ctx context.Context, fleet settings.FleetLock, closes time.Time) error {
	slot, err := h.askedFor(fleet)
	if err != nil {
		return err
	}
	had, err := In(h.Progress.Content)
	if err != nil {
		return err
	}
	if had != nil && (had.URL != slot.URL || had.Group != slot.Group || had.ID != slot.ID) {
		if err := h.unlock(ctx); err != nil {
			return err
		}
	}
	if err := h.keep(slot); err != nil {
		return err
	}
	h.startUnit(ctx)
	h.Progress.Begin(pivot.StepWait, fmt.Sprintf("asking the fleet's lock at %s for a slot of group %s", slot.URL, slot.Group))
	err = h.policy(closes).Do(ctx, h.Progress.Waiting, h.limited(h.client(slot).lock))
	if err != nil {
		h.GiveBackUnused(ctx)
		return err
	}
	slot.Held = true
	if err := h.keep(slot); err != nil {
		h.GiveBackUnused(ctx)
		return err
	}
	h.Progress.Note("the fleet's lock has granted a slot; it is given back when the machine has proven itself after the reboot")
	return nil
}

// startsWithin is how long a server may answer that it does not serve the protocol.
const startsWithin = 10 * time.Minute

// limited returns lock. Its error is permanent if the protocol has not been served for startsWithin. A server behind a
// proxy may only be starting; a wrong URL stays wrong.
func (h *Holder) limited(lock func(context.Context) error) func(context.Context) error {
	var since time.Time // of the first such response in a row
	return func(ctx context.Context) error {
		err := lock(ctx)
		switch now := h.Progress.Now(); {
		case !errors.Is(err, errNotFound):
			since = time.Time{}
		case since.IsZero():
			since = now
		case now.Sub(since) >= startsWithin:
			return fault.New(fault.Refused, "for %v: %w", startsWithin, err).
				WithHint("see the setting fleetlock: a FleetLock server serves /v1/pre-reboot below that URL")
		}
		return err
	}
}

func (h *Holder) policy(closes time.Time) retry.Policy {
	p := h.Retry
	p.First, p.Cap, p.Bound, p.Tries = 5*time.Second, 2*time.Minute, 0, math.MaxInt
	if !closes.IsZero() {
		p.Bound = max(closes.Sub(h.Progress.Now()), time.Nanosecond)
	}
	return p
}

// askedFor returns the slot to request.
func (h *Holder) askedFor(fleet settings.FleetLock) (Slot, error) {
	slot := Slot{URL: fleet.URL, Group: cmp.Or(fleet.Group, defaultGroup), ID: fleet.ID, Since: h.Progress.Now().UTC().Truncate(time.Second), Boot: h.Progress.BootID, Phase: h.Progress.Content.BootID}
	if slot.ID != "" {
		return slot, nil
	}
	machineID, err := os.ReadFile(h.Host.Path("/etc/machine-id"))
	if err != nil {
		return slot, fmt.Errorf("cannot derive this machine's ID for the fleet's lock: %w", err)
	}
	slot.ID, err = fleetID(string(machineID))
	return slot, err
}

// startUnit starts Unit, which waits for the end of this run. If this run is killed, Unit
// releases the slot. Otherwise it finds nothing to do, or the machine reboots.
func (h *Holder) startUnit(ctx context.Context) {
	if !h.Host.Runs() {
		return
	}
	if _, err := h.Host.Run(ctx, "systemctl", "start", "--no-block", Unit); err != nil {
		h.Progress.Note(fmt.Sprintf("warning: if this run is killed, its slot is given back at the next boot only: %v", err))
	}
}

// keep writes a slot to the journal.
func (h *Holder) keep(slot Slot) error {
	return h.Progress.Amend(func(r *pivot.JournalContent) error { return r.SetPart(Name, slot, pivot.Part{Stamp: true}) })
}

// client returns a client for the slot's server.
func (h *Holder) client(slot Slot) client {
	c := client{URL: slot.URL, Group: slot.Group, ID: slot.ID, Roots: h.Roots}
	proxy, err := source.Proxies(h.Host.Root)
	if err != nil {
		h.Progress.Note("warning: no proxy is used for the fleet's lock: " + err.Error())
		return c
	}
	c.Proxy = proxy
	return c
}
