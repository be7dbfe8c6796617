package identity

import (
	"context"
	"time"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/machine"
	"machine-pivot/internal/retry"
	"machine-pivot/internal/settings"
	"machine-pivot/pivot"
)

// name is the name of the feature's part of the journal.
const name = "identity"

// How long a machine that has lost its name waits for it, and how often it looks.
const (
	nameTimeout = 5 * time.Minute
	nameEvery   = 2 * time.Second
)

// part is the feature's part of the journal.
type part struct {
	Before  *Identity `json:"before,omitempty"`  // of a first boot's reboot, until it is compared; of a later one's, until the next change
	Start   string    `json:"start,omitempty"`   // in which a later change has noted it; "" if a first boot has
	Changes []string  `json:"changes,omitempty"` // what was not the same after a first boot
}

// Feature returns the comparison of what others know a machine by, before and after the reboot of a change.
func Feature() machine.Feature {
	return machine.Feature{Of: func(m *machine.Machine) pivot.Feature { return feature{m: m} }}
}

type feature struct {
	pivot.NoFeature
	m *machine.Machine
}

// Name implements pivot.Feature.
func (feature) Name() string { return name }

// Before implements pivot.Feature: the first attempt of a first boot notes the identity, since a later one may run in the new
// system. In an initramfs there is nothing of that yet. A later change notes it at its commit, and drops what was noted in
// another start of the system.
func (f feature) Before(_ context.Context, step pivot.Step, plan *pivot.Plan) error {
	if plan == nil {
		return nil
	}
	journal := &f.m.Progress.Content
	known, err := pivot.PartOf[part](*journal, name)
	now, started := string(f.m.Progress.BootID), f.m.Where().Started()
	switch noted := known != nil && known.Before != nil && known.Start == ""; {
	case err != nil:
		return err
	case step == pivot.StepBegin && !plan.Request().ByHand && !noted && started:
		return journal.SetPart(name, part{Before: new(Read(f.m.Host.Root))}, pivot.Part{})
	case step == pivot.StepIntend && !noted && started:
		return journal.SetPart(name, part{Before: new(Read(f.m.Host.Root)), Start: now}, pivot.Part{})
	case (step == pivot.StepReady || step == pivot.StepIntend) && !noted && (known == nil || known.Start != now):
		journal.DropPart(name)
	}
	return nil
}

// After implements pivot.Feature: it compares the identity with what it was before the reboot. Nothing of that makes the
// new system wrong: it is what was asked for. But a kubelet without the machine's name would join the cluster as another
// node, and so this waits for the name, which DHCP or a cloud's agent may bring late.
func (f feature) After(ctx context.Context, step pivot.Step, _ *pivot.Plan, failed bool) error {
	if step != pivot.StepProve || failed {
		return nil
	}
	known, err := pivot.PartOf[part](f.m.Progress.Content, name)
	if err != nil || known == nil || known.Before == nil {
		return err
	}
	chosen, err := f.m.Settings()
	if err == nil && chosen.Identity == settings.IdentityHold {
		err = f.awaitName(ctx, *known.Before)
	}
	if err != nil {
		return err
	}
	changes := known.Before.Changes(Read(f.m.Host.Root))
	for _, change := range changes {
		f.m.Progress.Note("warning: " + change)
	}
	if len(changes) == 0 {
		f.m.Progress.Content.DropPart(name)
		return nil
	}
	return f.m.Progress.Content.SetPart(name, part{Changes: changes}, pivot.Part{})
}

// awaitName waits until a machine that has lost its name has one, but not for ever.
func (f feature) awaitName(ctx context.Context, before Identity) error {
	policy := retry.Policy{First: nameEvery, Cap: nameEvery, Bound: nameTimeout, Now: f.m.Retry.Now, Sleep: f.m.Retry.Sleep}
	err := policy.Do(ctx, f.m.Progress.Waiting, func(context.Context) error {
		if now := Read(f.m.Host.Root); before.LostName(now) {
			return fault.New(fault.Unavailable, "the host name is %q; before the reboot it was %q", now.Name, before.Name)
		}
		return nil
	})
	if ctx.Err() == nil {
		return nil
	}
	return err
}

// Status implements pivot.Feature. No record says what a later change's reboot has changed, since nothing of pivot runs then.
func (f feature) Status(r pivot.JournalContent) (s pivot.Status) {
	known, err := pivot.PartOf[part](r, name)
	switch {
	case err != nil:
		s.Notes = []string{fault.WithRemedy(err)}
	case known != nil:
		for _, change := range known.Changes {
			s.Notes = append(s.Notes, "after the first boot: "+change)
		}
		if now, err := f.m.Host.Start(); err == nil && known.Start != "" && known.Start != string(now) && known.Before != nil {
			for _, change := range known.Before.Changes(Read(f.m.Host.Root)) {
				s.Notes = append(s.Notes, "since the last change: "+change)
			}
		}
	}
	return s
}
