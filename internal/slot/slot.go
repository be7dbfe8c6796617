// Package slot holds a slot of the fleet's lock for a machine that is going to reboot, so that
// only some machines of a fleet are away at a time.
//
// Its steps are methods of Holder. Before a change Allow says whether a slot could be given back
// afterwards, and Take waits for one. It is held over the reboot: in the new system GiveBack gives
// it back when the machine has proven itself. The journal has the slot from before it is asked
// for (pivot.Slot), and pivot.JudgeSlot says from it what the slot is still needed for. The lock
// itself is a server, which package fleetlock asks.
package slot

import (
	"context"
	"crypto/x509"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/host"
	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/retry"
	"machine-pivot/pivot"
)

// Unit gives a slot of the fleet's lock back.
const Unit = "pivot-slot.service"

// unitWants is the link that enables the unit.
const unitWants = "/etc/systemd/system/multi-user.target.wants/" + Unit

// Holder has at most one slot, the journal's, for one machine. Whoever calls a method has opened
// the journal and has the machine's lock.
type Holder struct {
	Host     *host.Host
	Progress *pivot.Progress
	Retry    retry.Policy // its bounds are not for slots: see Take
	// Differences are those of the system that runs from what was last asked for.
	Differences func(ctx context.Context) ([]string, error)
	Roots       *x509.CertPool // authorities of the fleet's lock; nil: the system's
}

// Allow is an error if nobody would give a slot back, in this system. What it returns has to be asked
// of the next one.
func (h *Holder) Allow() (hostfiles.File, error) {
	link, err := h.Host.Enablement(unitWants, "give it back")
	if err != nil {
		return link, fault.New(fault.Refused, "cannot take a slot of the fleet's lock: %w", err)
	}
	return link, nil
}

// Accept is an error if the system of a commit, which is in the repository, has nobody who would
// give a slot back.
func (h *Holder) Accept(commit string) error {
	has, err := h.Host.WillHaveUnit(Unit, commit)
	if err == nil && !has {
		err = fault.New(fault.Refused, "cannot take a slot of the fleet's lock: the new system has no %s, so nobody would give it back", host.UnitInImage(Unit)).
			WithHint("put this release of pivot into the image, or go there with --fleetlock=none")
	}
	return err
}
