package pivot

import (
	"context"
	"slices"
	"time"

	"machine-pivot/internal/hostfiles"
)

// Download is what was pulled for a later run. Of a MachineConfig the journal has the digest
// only: its content is kept where only root may read it (Journal.Store).
type Download struct {
	Image Image `json:"image,omitzero"` // zero: the booted one stays
	// Names are the images by the names that they were asked for, perhaps tags: what these
	// lead to by now does not matter.
	Names map[string]Image `json:"names,omitempty"`
	// MachineConfig is what all of it was asked for by, in the file of that name; "": by
	// arguments.
	MachineConfig hostfiles.Digest `json:"machineConfig,omitempty"`
	File          string           `json:"file,omitempty"`
	// At is when it was complete; zero: nothing is downloaded, but for what is left.
	At time.Time `json:"at,omitzero"`
	// Left are images of which the refs have still to go: of downloads before, or of a pull that
	// was begun and is not complete.
	Left []Image `json:"left,omitempty"`
}

// Others are all images of a download but one.
func (d Download) Others(than Image) []Image {
	return slices.DeleteFunc(append(slices.Clone(d.Left), d.Image), func(i Image) bool { return i.IsZero() || i.Same(than) })
}

// Same reports whether two downloads were asked for by the same, and led to the same.
func (d Download) Same(other Download) bool {
	if d.MachineConfig != other.MachineConfig || d.Image.Digest != other.Image.Digest || len(d.Names) != len(other.Names) {
		return false
	}
	for name, image := range d.Names {
		if other.Names[name].Digest != image.Digest {
			return false
		}
	}
	return true
}

// kept are the contents that must stay as long as the record names them.
func (r Record) kept() []hostfiles.Digest {
	if r.Downloaded == nil || r.Downloaded.MachineConfig == "" {
		return r.Contents
	}
	return append(slices.Clone(r.Contents), r.Downloaded.MachineConfig)
}

// Amend changes what the journal has beside its transaction, durably. What a run that only
// does that took is no part of the transaction before.
func (p *Progress) Amend(change func(*Record)) error {
	record, err := p.Journal.Load()
	if err != nil {
		return err
	}
	change(&record)
	if err := p.Journal.Save(record); err != nil {
		return err
	}
	change(&p.Record)
	return nil
}

// Download does of Converge what neither the system that runs nor the next boot sees: all
// checks, and the pull, before which it calls begin. It returns the plan, with what was learned
// of the image. The ask must be pinned, and the progress open.
func (c *Converger) Download(ctx context.Context, ask Ask, begin func() error) (Plan, error) {
	c.Progress.Begin(StepObserve, "looking at the host")
	state, target, err := c.measure(ctx, ask)
	if err != nil {
		return Plan{}, err
	}
	plan, err := Diff(state, target)
	if err != nil || !plan.Changed {
		return plan, err
	}
	if err := c.preflight(ctx, ask, plan); err != nil {
		return plan, err
	}
	t, err := c.transaction(ask, plan)
	if err == nil {
		err = begin()
	}
	if err != nil {
		return plan, err
	}
	r, err := t.request(ctx, &plan)
	if err == nil {
		_, err = r.ForCommit(r.Commit)
	}
	return plan, err
}
