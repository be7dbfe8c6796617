package firstboot

import (
	"context"
	"fmt"
	"slices"
	"time"

	"machine-pivot/internal/hostfiles"
	"machine-pivot/pivot"
)

// Downloaded is what came of a download.
type Downloaded struct {
	pivot.Plan      // what it is for
	New        bool // it was not downloaded already
	Kept       bool // for a run with FromDownloaded
}

// Download does of Run what neither the running system nor the next boot sees: it checks the
// MachineConfig against the machine, pulls the image, and keeps both for a run with
// FromDownloaded.
func (a *Apply) Download(ctx context.Context) (Downloaded, error) {
	return a.downloading(ctx, func() (p Downloaded, err error) {
		if a.Repair { // what was downloaded for later stays
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

// Download does of Run what neither the running system nor the next boot sees.
func (r *Rebase) Download(ctx context.Context) (Downloaded, error) {
	return r.downloading(ctx, func() (p Downloaded, err error) {
		ask, err := r.read()
		if err != nil {
			return p, err
		}
		return r.download(ctx, ask, pivot.Download{}, nil)
	})
}

// downloading runs what only downloads. Trials and changes that were interrupted are left
// alone: the machine is not changed.
func (m *Machine) downloading(ctx context.Context, run func() (Downloaded, error)) (p Downloaded, err error) {
	if err = m.open(); err == nil {
		defer m.pulledImages().Close()
		p, err = run()
	}
	if err = m.stopped(ctx, err); err != nil {
		m.Progress.Fail(err)
		return p, err
	}
	if p.Kept {
		m.sayDownloaded(p)
	}
	return p, nil
}

// download pulls what is asked for, and keeps it with the content of the MachineConfig that
// asks for it. What was downloaded before stays until this is complete: it may fail, and layers
// that both have are not fetched again.
func (m *Machine) download(ctx context.Context, ask pivot.Ask, d pivot.Download, content []byte) (p Downloaded, err error) {
	p.Kept = true
	before := m.hasDownloaded()
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

// hasDownloaded is what the journal has of downloads.
func (m *Machine) hasDownloaded() pivot.Download {
	if d := m.Progress.Record.Downloaded; d != nil {
		return *d
	}
	return pivot.Download{}
}

// pullAsked checks and pulls what is asked for, and tells the download of it.
func (m *Machine) pullAsked(ctx context.Context, ask pivot.Ask, d *pivot.Download) (pivot.Plan, error) {
	plan, err := m.converger().Plan(ctx, ask)
	if err != nil {
		return plan, err
	}
	to := plan.To()
	d.Names = named(ask, to)
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

// named are the images that are asked for, by the names that they are asked for by.
func named(ask pivot.Ask, found pivot.Target) map[string]pivot.Image {
	names := map[string]pivot.Image{}
	if !ask.Image.IsZero() {
		names[ask.Image.Reference] = found.Image.Pinned()
	}
	if source := ask.Packages.Source; !source.IsZero() {
		names[source.Reference] = found.Packages.Source.Pinned()
	}
	return names
}

// beginPull makes the journal know an image before it is pulled, so that what a crash leaves of
// it goes with the next download.
func (m *Machine) beginPull(image pivot.Image) error {
	before := m.hasDownloaded()
	if image.Same(before.Image) {
		return nil
	}
	before.Left = append(slices.DeleteFunc(slices.Clone(before.Left), image.Same), image)
	return m.keepDownload(&before)
}

// completeDownload makes a download the machine's, in place of the one before, of which
// nothing stays.
func (m *Machine) completeDownload(ctx context.Context, d pivot.Download, content []byte) error {
	if content != nil {
		if err := m.Progress.Journal.Store(content); err != nil {
			return err
		}
	}
	if err := m.keepDownload(new(d)); err != nil || len(d.Left) == 0 {
		return err
	}
	if err := m.pulledImages().RemoveDownloaded(ctx, d.Left); err != nil {
		return err
	}
	d.Left = nil
	return m.keepDownload(&d)
}

// keepDownload makes a download, or nil for none, the journal's: the caller changes it no more.
func (m *Machine) keepDownload(d *pivot.Download) error {
	return m.Progress.Amend(func(r *pivot.Record) { r.Downloaded = d })
}

// sayDownloaded tells what is there, and what is left.
func (m *Machine) sayDownloaded(p Downloaded) {
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

// usedDownload ends a download once the machine, or its next boot, has what it was for. The
// machine is well also if that fails, so it is only noted.
func (m *Machine) usedDownload(ctx context.Context, image pivot.Image) {
	d := m.hasDownloaded()
	used, rest := []pivot.Image{image}, &d
	switch {
	case m.FromDownloaded, d.Image.Same(image):
		used, rest = d.Others(pivot.Image{}), nil
	case !slices.ContainsFunc(d.Left, image.Same):
		return
	default: // it was pulled by this run, before its slot
		if d.Left = slices.DeleteFunc(slices.Clone(d.Left), image.Same); d.At.IsZero() && len(d.Left) == 0 {
			rest = nil
		}
	}
	err := m.pulledImages().RemoveDownloaded(context.WithoutCancel(ctx), used)
	if err == nil {
		err = m.keepDownload(rest)
	}
	if err != nil {
		m.Progress.Note(fmt.Sprintf("what was downloaded stays: %v", err))
	}
}
