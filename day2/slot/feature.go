package slot

import (
	"context"
	"fmt"
	"time"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/machine"
	"machine-pivot/pivot"
)

// Name is the name of this feature: of its part of the journal and of its stamp.
const Name = "slot"

// Feature returns the fleet's lock, with its command.
func Feature() machine.Feature {
	return machine.Feature{Of: of, Commands: []machine.Command{release()}}
}

// feature is the fleet's lock of a machine.
type feature struct {
	*Holder
	machine *machine.Machine
}

var _ pivot.Feature = feature{}

func of(m *machine.Machine) pivot.Feature { return feature{holder(m), m} }

// holder returns what takes and gives back a machine's slot.
func holder(m *machine.Machine) *Holder {
	return &Holder{Host: m.Host, Progress: m.Progress, Retry: m.Retry, Differences: m.Failures, Roots: m.FleetRoots}
}

// Name implements pivot.Feature.
func (feature) Name() string { return Name }

// Demand implements pivot.Feature: a reboot waits for its slot. That of a first boot takes no service away.
func (f feature) Demand(plan *pivot.Plan) (pivot.Demand, error) {
	if plan == nil || !plan.Request().Reboots || !plan.Request().ByHand {
		return pivot.DemandNone, nil
	}
	chosen, err := f.machine.Settings()
	if err != nil || chosen.FleetLock.URL == "" {
		return pivot.DemandNone, nil
	}
	return pivot.DemandWait, nil
}

// Before implements pivot.Feature. The slot is held as briefly as possible: everything that needs the network is done
// before.
func (f feature) Before(ctx context.Context, step pivot.Step, plan *pivot.Plan) error {
	if step != pivot.StepPreflight && step != pivot.StepWait {
		return nil
	}
	if demand, _ := f.Demand(plan); demand != pivot.DemandWait {
		return nil
	}
	link, err := f.Allow()
	if err != nil || step == pivot.StepPreflight {
		return err
	}
	return f.wait(ctx, plan, link)
}

// wait waits for a slot. The plan gets the link by which the next system gives it back.
func (f feature) wait(ctx context.Context, plan *pivot.Plan, link hostfiles.File) error {
	if plan.Image.Changed {
		if err := f.CheckRelease(plan.To().Image.Commit); err != nil {
			return err
		}
	}
	chosen, err := f.machine.Settings()
	if err != nil {
		return err
	}
	*plan = plan.With(link)
	return f.Take(ctx, chosen.FleetLock, plan.Request().Until)
}

// After implements pivot.Feature. The slot is kept over the reboot, until the machine has proven itself.
func (f feature) After(ctx context.Context, step pivot.Step, _ *pivot.Plan, failed bool) error {
	if step == pivot.StepWait && failed {
		f.GiveBackUnused(ctx)
	}
	return nil
}

// Status implements pivot.Feature.
func (feature) Status(r pivot.JournalContent) (s pivot.Status) {
	slot, err := In(r)
	switch {
	case err != nil:
		s.Lines = []pivot.Line{{Name: Name, Text: fault.WithRemedy(err)}}
	case slot != nil:
		asked := map[bool]string{true: "granted, asked for", false: "asked for"}[slot.Held]
		s.Lines = []pivot.Line{{Name: Name, Text: fmt.Sprintf("of group %s at %s, %s %s", slot.Group, slot.URL, asked, slot.Since.Format(time.RFC3339))}}
	}
	return s
}
