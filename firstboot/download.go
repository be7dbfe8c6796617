package firstboot

import (
	"context"
	"fmt"
	"slices"
	"time"

	"machine-pivot/internal/hostfiles"
	"machine-pivot/pivot"
)

// Downloaded is the result of a download.
type Downloaded struct {
	pivot.Plan      // of the change that it is for
	New        bool // false: it was downloaded before
	Kept       bool // for a run with FromDownloaded
}

// Download does the part of Run that changes neither the running system nor the next boot: it
// checks the MachineConfig against the machine, pulls the image, and keeps both for a run with
// FromDownloaded. A repair only checks.
func (a *Apply) Download(ctx context.Context) (Downloaded, error) {
	return a.runDownload(ctx, func() (p Downloaded, err error) {
		if a.Repair { // keep what was downloaded for another run
			p.Plan, _, err = a.compare(ctx)
			return p, err
		}
		ask, err := a.read(ctx)
		if err != nil {
			return p, err
		}
		p, err = a.download(ctx, ask.Ask, pivot.Download{File: a.File, MachineConfig: hostfiles.DigestOf(a.Data)}, a.Data)
		if err == nil {
			p.Plan, err = a.judged(p.Plan, ask.Entries)
		}
		return p, err
	})
}

// Download does the part of Run that changes neither the running system nor the next boot: it
// checks what is asked for, pulls the image, and keeps it for a run with FromDownloaded.
func (r *Rebase) Download(ctx context.Context) (Downloaded, error) {
	return r.runDownload(ctx, func() (p Downloaded, err error) {
		ask, err := r.read()
		if err != nil {
			return p, err
		}
		return r.download(ctx, ask, pivot.Download{}, nil)
	})
}

// runDownload runs a download. It does not touch trials and interrupted changes, because a
// download does not change the machine.
func (m *Machine) runDownload(ctx context.Context, run func() (Downloaded, error)) (p Downloaded, err error) {
	if err = m.open(); err == nil {
		defer m.pulledImages().Close()
		p, err = run()
	}
	err = m.explainStop(ctx, err)
	if err == nil && p.Kept {
		m.noteDownloaded(p)
		if p.New {
			m.runResult().endChanged(OutcomeDownloaded)
		}
	}
	m.Progress.End(err)
	return p, err
}

// download pulls what is asked for, and keeps it with the content of the MachineConfig. The
// previous download stays until this one is complete, because this one may fail, and so that
// layers that both have are not fetched again.
func (m *Machine) download(ctx context.Context, ask pivot.Ask, d pivot.Download, content []byte) (p Downloaded, err error) {
	p.Kept = true
	before := m.recordedDownload()
	if p.Plan, err = m.pullAsked(ctx, ask, &d); err != nil {
		return p, err
	}
	p.New = before.At.IsZero() || !before.Same(d)
	if d.At = before.At; p.New {
		d.At = m.Progress.Now().UTC().Truncate(time.Second)
	}
	d.Left = before.Others(d.Image)
	return p, m.completeDownload(ctx, d, content)
}

// recordedDownload returns the download in the journal; zero if there is none.
func (m *Machine) recordedDownload() pivot.Download {
	if d := m.Progress.Record.Downloaded; d != nil {
		return *d
	}
	return pivot.Download{}
}

// pullAsked checks and pulls what is asked for, and sets the names and the image of d.
func (m *Machine) pullAsked(ctx context.Context, ask pivot.Ask, d *pivot.Download) (pivot.Plan, error) {
	plan, err := m.converger().Plan(ctx, ask)
	if err != nil {
		return plan, err
	}
	to := plan.To()
	d.Names = imagesByName(ask, to)
	ask.Image, ask.Packages.Source = to.Image.Pinned(), to.Packages.Source
	plan, err = m.converger().Download(ctx, ask, func() error {
		if !plan.Image.Changed {
			return nil
		}
		return m.beginPull(ask.Image)
	})
	if err == nil && plan.Image.Changed {
		d.Image = plan.To().Image
	}
	return plan, err
}

// imagesByName maps the requested references, which may be tags, to the images that were found.
func imagesByName(ask pivot.Ask, found pivot.Target) map[string]pivot.Image {
	names := map[string]pivot.Image{}
	if !ask.Image.IsZero() {
		names[ask.Image.Reference] = found.Image.Pinned()
	}
	if source := ask.Packages.Source; !source.IsZero() {
		names[source.Reference] = found.Packages.Source.Pinned()
	}
	return names
}

// beginPull records an image in the journal before it is pulled, so that the next command that
// pulls removes what a crash or a failure leaves behind.
func (m *Machine) beginPull(image pivot.Image) error {
	before := m.recordedDownload()
	if image.Same(before.Image) || slices.ContainsFunc(before.Left, image.Same) {
		return nil
	}
	before.Left = append(slices.Clone(before.Left), image)
	return m.saveDownload(&before)
}

// completeDownload records a download in the journal, and removes what is left of the
// previous one.
func (m *Machine) completeDownload(ctx context.Context, d pivot.Download, content []byte) error {
	if content != nil {
		if err := m.Progress.Journal.Store(content); err != nil {
			return err
		}
	}
	if err := m.saveDownload(new(d)); err != nil || len(d.Left) == 0 {
		return err
	}
	if err := m.pulledImages().Remove(ctx, d.Left); err != nil {
		return err
	}
	d.Left = nil
	return m.saveDownload(&d)
}

// saveDownload sets the journal's download; nil removes it. The caller must not change d
// afterwards.
func (m *Machine) saveDownload(d *pivot.Download) error {
	return m.Progress.Amend(func(r *pivot.Record) { r.Downloaded = d })
}

// noteDownloaded notes what was downloaded and which command applies it.
func (m *Machine) noteDownloaded(p Downloaded) {
	d := m.Progress.Record.Downloaded
	what := "no image has to be pulled"
	if !d.Image.IsZero() {
		what = d.Image.String() + " is in the repository"
	}
	if !p.New {
		what = "nothing to do, it was downloaded at " + d.At.Format(time.RFC3339) + ": " + what
	}
	if d.MachineConfig != "" {
		what += ", MachineConfig " + d.File + " is kept"
	}
	m.Progress.Note(what + "; neither the running system nor the next boot has changed")
	command := "apply"
	if d.MachineConfig == "" {
		command = "rebase"
	}
	m.Progress.Note("what is left: pivot " + command + " --from-downloaded commits it, without asking a registry for an image")
	if len(p.Packages) > 0 {
		m.Progress.Note("packages are fetched when it is applied, for which the network is needed then")
	}
}

// dropUsedDownload removes a download once the machine, or its next boot, has what it was for. If
// this run has moved the machine, what earlier runs left is removed as well. A failure is only
// noted, since it does not affect the machine.
func (m *Machine) dropUsedDownload(ctx context.Context, image pivot.Image, moved bool) {
	d := m.recordedDownload()
	used, rest := []pivot.Image{image}, &d
	switch {
	case m.FromDownloaded, d.Image.Same(image):
		used, rest = d.Others(pivot.Image{}), nil
	case moved && len(d.Left) > 0:
		used, d.Left = d.Left, nil
	case !slices.ContainsFunc(d.Left, image.Same):
		return
	default: // an earlier run pulled the image
		d.Left = slices.DeleteFunc(slices.Clone(d.Left), image.Same)
	}
	if rest != nil && d.At.IsZero() && len(d.Left) == 0 {
		rest = nil
	}
	err := m.pulledImages().Remove(context.WithoutCancel(ctx), used)
	if err == nil {
		err = m.saveDownload(rest)
	}
	if err != nil {
		m.Progress.Note(fmt.Sprintf("what was downloaded stays: %v", err))
	}
}
