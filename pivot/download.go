package pivot

import (
	"context"
	"slices"
	"time"

	"machine-pivot/internal/hostfiles"
)

// Download is what was pulled for a later run. The journal has only the digest of the
// MachineConfig; its content is kept where only root can read it (Journal.Store).
type Download struct {
	Image Image `json:"image,omitzero"` // zero if the booted image stays
	// Names maps the requested names, possibly tags, to the downloaded images. A later run uses
	// these whatever the tags point to by then.
	Names map[string]Image `json:"names,omitempty"`
	// MachineConfig is the digest of the MachineConfig that requested the download, and File its
	// path; "" if it was requested by arguments.
	MachineConfig hostfiles.Digest `json:"machineConfig,omitempty"`
	File          string           `json:"file,omitempty"`
	// At is when the download was complete; zero if there is none, and only Left counts.
	At time.Time `json:"at,omitzero"`
	// Left are images whose refs are still to be removed: of earlier downloads, or of a pull
	// that did not complete.
	Left []Image `json:"left,omitempty"`
}

// Others returns all images of a download except than.
func (d Download) Others(than Image) []Image {
	return slices.DeleteFunc(append(slices.Clone(d.Left), d.Image), func(i Image) bool { return i.IsZero() || i.Same(than) })
}

// Same reports whether two downloads have the same request and the same images.
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

// Amend durably changes the parts of the journal that are independent of the transaction. It
// changes the saved content and the one in memory separately, so that the steps of this run are
// not added to an earlier transaction.
func (p *Progress) Amend(change func(*JournalContent) error) error {
	journal, err := p.Journal.Load()
	if err != nil {
		return err
	}
	if err := change(&journal); err != nil {
		return err
	}
	if err := p.Journal.Save(journal); err != nil {
		return err
	}
	return change(&p.Content)
}

// Download does the part of Converge that changes neither the running system nor the next boot:
// all checks and the pull. It returns the plan with what was learned about the image.
func (c *Converger) Download(ctx context.Context, plan Plan) (Plan, error) {
	if plan.wrong != nil || !plan.Changed {
		return plan, plan.wrong
	}
	if err := c.preflight(ctx, &plan); err != nil {
		return plan, err
	}
	t, err := c.transaction(plan)
	if err != nil {
		return plan, err
	}
	r, err := t.request(ctx, &plan)
	if err == nil {
		err = t.after(ctx, StepPull, &plan, false)
	}
	if err == nil {
		_, err = r.ForCommit(r.Commit)
	}
	return plan, err
}
