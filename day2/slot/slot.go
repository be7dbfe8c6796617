// Package slot holds a FleetLock slot for a machine that is going to reboot, so that only a
// limited number of machines of a fleet reboot at the same time.
//
// The steps are methods of Holder. Before a change, Allow checks that a slot can be released
// afterwards, and Take waits for one. It is held over the reboot: in the new system, GiveBack
// releases it when the machine has proven itself. The slot is journaled before it is requested
// (Slot), and its method Judge says what it is still needed for. Package fleetlock talks to
// the server.
package slot

import (
	"context"
	"crypto/x509"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/host"
	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/retry"
	"machine-pivot/pivot"
	systemdunits "machine-pivot/systemd-units"
)

// Unit is the systemd unit that releases the slot.
const Unit = systemdunits.Slot

// unitWants is the link that enables Unit.
const unitWants = "/etc/systemd/system/multi-user.target.wants/" + Unit

// Holder manages the slot of one machine: at most one, which is in the journal. The callers of
// its methods must have opened the journal and hold the machine's lock.
type Holder struct {
	Host     *host.Host
	Progress *pivot.Progress
	Retry    retry.Policy // for its clock and sleep; Take has its own limits
	// Differences returns how the running system differs from the last target.
	Differences func(ctx context.Context) ([]string, error)
	Roots       *x509.CertPool // certificate authorities for the server; nil uses the system's
}

// Allow returns an error if Unit is not enabled in this system, so that a slot would not be
// released. The returned link enables it and must be among the entries of the next system.
func (h *Holder) Allow() (hostfiles.File, error) {
	link, err := h.Host.Enablement(unitWants, "give it back")
	if err != nil {
		return link, fault.New(fault.Refused, "cannot ask the FleetLock server for permission to reboot: %w", err)
	}
	return link, nil
}

// CheckRelease returns an error if the system of commit, which is in the repository, lacks Unit, so
// that the slot would not be released.
func (h *Holder) CheckRelease(commit string) error {
	has, err := h.Host.WillHaveUnit(Unit, commit)
	if err == nil && !has {
		err = fault.New(fault.Refused, "cannot ask the FleetLock server for permission to reboot: the new system has no %s, so nothing would give it back", host.UnitInImage(Unit)).
			WithHint("put this release of pivot into the image, or use --fleetlock=none")
	}
	return err
}
