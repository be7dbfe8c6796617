package firstboot

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"os"
	"strings"
	"time"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/fleetlock"
	"machine-pivot/internal/host"
	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/osimage/source"
	"machine-pivot/internal/retry"
	"machine-pivot/pivot"
)

// SlotUnit gives a slot of the fleet's lock back.
const SlotUnit = "pivot-slot.service"

// slotWants is the link that enables the unit.
const slotWants = "/etc/systemd/system/multi-user.target.wants/" + SlotUnit

// inTurn changes the machine, with a reboot, when the fleet lets it. A slot is held for as
// short as can be: what needs the network is done before, and the change then asks no
// registry. It is held over the reboot, until the machine has proven itself.
func (m *Machine) inTurn(ctx context.Context, fleet host.FleetLock, ask pivot.Ask, change func(pivot.Ask) (bool, error)) (changed bool, err error) {
	if err := m.canGiveBack(); err != nil {
		return false, err
	}
	link, _, err := hostfiles.Read(m.Host.Root, slotWants)
	if err != nil {
		return false, err
	}
	// The image's own default could be that the unit is not enabled.
	ask.Entries = append(ask.Entries, link)
	plan, err := m.fetched(ctx, ask)
	if err != nil {
		return false, err
	}
	if plan.Changed {
		if err := m.acceptSlot(plan); err != nil {
			return false, err
		}
		if err := m.takeSlot(ctx, fleet); err != nil {
			return false, err
		}
	}
	changed, err = change(ask)
	if plan.Changed && (err != nil || !changed) {
		m.giveBackUnused(ctx)
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

// canGiveBack is an error if nobody would give a slot back.
func (m *Machine) canGiveBack() error {
	if enabled, err := m.Host.Has(slotWants); err != nil || enabled {
		return err
	}
	return fault.New(fault.Refused, "cannot take a slot of the fleet's lock: %s is not enabled, which would give it back", SlotUnit).
		WithHint("systemctl enable %s", SlotUnit)
}

// acceptSlot is an error if the new system has nobody who would give the slot back.
func (m *Machine) acceptSlot(plan pivot.Plan) error {
	if !plan.Image.Changed {
		return nil
	}
	commit := plan.To().Image.Commit
	if commit == "" { // a plan does not know it
		commit = m.hasDownloaded().Image.Commit
	}
	has, err := m.Host.WillHaveUnit(SlotUnit, commit)
	if err == nil && !has {
		err = fault.New(fault.Refused, "cannot take a slot of the fleet's lock: the new system has no %s, so nobody would give it back", host.UnitInImage(SlotUnit)).
			WithHint("put this release of pivot into the image, or go there with --fleetlock=none")
	}
	return err
}

// takeSlot waits until the fleet's lock grants a slot, or the window closes.
func (m *Machine) takeSlot(ctx context.Context, fleet host.FleetLock) error {
	slot, err := m.slotFor(fleet)
	if err != nil {
		return err
	}
	if had := m.Progress.Record.Slot; had != nil && (had.URL != slot.URL || had.Group != slot.Group || had.ID != slot.ID) {
		if err := m.giveBack(ctx); err != nil {
			return err
		}
	}
	if err := m.keepSlot(&slot); err != nil {
		return err
	}
	m.watchSlot(ctx)
	m.Progress.Begin(pivot.StepWait, fmt.Sprintf("asking the fleet's lock at %s for a slot of group %s", slot.URL, slot.Group))
	err = m.slotPolicy().Do(ctx, m.Progress.Waiting, m.client(slot).Lock)
	if err != nil {
		m.giveBackUnused(ctx)
		return m.inTime(ctx, err)
	}
	slot.Held = true
	if err := m.keepSlot(&slot); err != nil {
		m.giveBackUnused(ctx)
		return err
	}
	m.Progress.Note("the fleet's lock has granted a slot; it is given back when the machine has proven itself after the reboot")
	return nil
}

// slotFor is the slot that is asked for.
func (m *Machine) slotFor(fleet host.FleetLock) (pivot.Slot, error) {
	slot := pivot.Slot{URL: fleet.URL, Group: cmp.Or(fleet.Group, fleetlock.DefaultGroup), ID: fleet.ID, Since: m.Progress.Now().UTC().Truncate(time.Second), Boot: m.Progress.BootID, Phase: m.Progress.Record.BootID}
	if slot.ID != "" {
		return slot, nil
	}
	machineID, err := os.ReadFile(m.Host.Path("/etc/machine-id"))
	if err != nil {
		return slot, fmt.Errorf("cannot derive this machine's ID for the fleet's lock: %w", err)
	}
	slot.ID, err = fleetlock.ID(string(machineID))
	return slot, err
}

// slotPolicy is for how long a slot is waited for: others have it for as long as their reboots
// take, so there is no bound but the window's end.
func (m *Machine) slotPolicy() retry.Policy {
	p := m.Retry
	p.First, p.Cap, p.Bound, p.Tries = 5*time.Second, 2*time.Minute, 0, math.MaxInt
	if !m.closes.IsZero() {
		p.Bound = max(m.closes.Sub(m.Progress.Now()), time.Nanosecond)
	}
	return p
}

// watchSlot has the unit wait for the end of this run: if that is killed, the unit gives the
// slot back. Else it finds nothing to do, or the machine reboots.
func (m *Machine) watchSlot(ctx context.Context) {
	if !m.Host.Runs() {
		return
	}
	if _, err := m.Host.Run(ctx, "systemctl", "start", "--no-block", SlotUnit); err != nil {
		m.Progress.Note(fmt.Sprintf("warning: if this run is killed, its slot is given back at the next boot only: %v", err))
	}
}

// keepSlot makes a slot, or nil for none, the journal's.
func (m *Machine) keepSlot(slot *pivot.Slot) error {
	return m.Progress.Amend(func(r *pivot.Record) { r.Slot = copied(slot) })
}

// client asks the server that a slot is of.
func (m *Machine) client(slot pivot.Slot) fleetlock.Client {
	c := fleetlock.Client{URL: slot.URL, Group: slot.Group, ID: slot.ID, Roots: m.FleetRoots}
	proxy, err := source.Proxies(m.Host.Root)
	if err != nil {
		m.Progress.Note("warning: no proxy is used for the fleet's lock: " + err.Error())
		return c
	}
	c.Proxy = proxy
	return c
}

// giveBack gives the journal's slot back.
func (m *Machine) giveBack(ctx context.Context) error {
	slot := m.Progress.Record.Slot
	if slot == nil {
		return nil
	}
	if err := m.client(*slot).Unlock(ctx); err != nil {
		return fmt.Errorf("cannot give the slot of group %s back: %w", slot.Group, err)
	}
	if err := m.keepSlot(nil); err != nil {
		return err
	}
	m.Progress.Note("the slot of the fleet's lock is given back")
	return nil
}

// giveBackUnused gives a slot back that was taken for a change that has failed. After a commit
// it stays: the machine may reboot at any time.
func (m *Machine) giveBackUnused(ctx context.Context) {
	ctx = context.WithoutCancel(ctx)
	why, err := m.slotNeeded(ctx)
	if err == nil && why == "" {
		err = m.giveBack(ctx)
	}
	switch {
	case err != nil:
		m.Progress.Note(fmt.Sprintf("%v; %s tries it again", err, SlotUnit))
	case why != "":
		m.Progress.Note("the slot of the fleet's lock stays: " + why)
	}
}

// slotNeeded is why the journal's slot cannot be given back yet; "" if it can.
func (m *Machine) slotNeeded(ctx context.Context) (why string, err error) {
	record := m.Progress.Record
	state, err := m.Host.Observe(ctx, record.Target)
	if err != nil {
		return "", err
	}
	switch pivot.JudgeSlot(record, state.BootID, state.Pending()) {
	case pivot.SlotTried:
		return "the new system is on trial", nil
	case pivot.SlotWaits:
		return "deployment " + state.Default.ID() + " is committed and waits for its reboot", nil
	case pivot.SlotProves:
		lacks, err := m.differences(ctx)
		return strings.Join(append(lacks, m.Host.Unhealthy(ctx)...), "; "), err
	}
	return "", nil
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
	if !s.Force {
		why, err := s.slotNeeded(ctx)
		if err != nil {
			return err
		}
		if why != "" {
			return fault.New(fault.Unavailable, "cannot give the slot of the fleet's lock back yet: %s", why).
				WithHint("correct that, and it is given back; pivot release-slot --force gives it back as it is")
		}
	}
	return s.giveBack(ctx)
}
