package day2

import (
	"context"
	"fmt"
	"slices"
	"time"

	"machine-pivot/internal/machine"
	"machine-pivot/internal/osimage/imageref"
	"machine-pivot/pivot"
)

// Downloaded is the result of a download.
type Downloaded struct {
	pivot.Plan      // of the change that it is for
	New        bool // false: it was downloaded before
	Kept       bool // for a run with RunOptions.Downloaded
}

// runDownload runs a download. It does not touch trials and interrupted changes, because a
// download does not change the machine.
func runDownload(ctx context.Context, m *machine.Machine, run func() (Downloaded, error)) (p Downloaded, err error) {
	if err = m.Open(); err == nil {
		defer m.Pulled().Close()
		p, err = run()
	}
	if err == nil && p.Kept {
		err = noteDownloaded(m, p)
		if p.New {
			m.Report().EndChanged(machine.OutcomeDownloaded)
		}
	}
	return p, end(ctx, m, err)
}

// download pulls what is asked for, and keeps it with the content of the MachineConfig. The
// previous download stays until this one is complete, because this one may fail, and so that
// layers that both have are not fetched again.
func download(ctx context.Context, m *machine.Machine, req pivot.Request, d Download, content []byte) (p Downloaded, err error) {
	p.Kept = true
	c := converger(m, nil)
	plan, err := c.Plan(ctx, req)
	if err != nil {
		return p, err
	}
	before, err := recordedDownload(m)
	if err != nil {
		return p, err
	}
	if p.Plan, err = pull(ctx, c, plan, &d); err != nil {
		return p, err
	}
	p.New = before.At.IsZero() || !before.Same(d)
	if d.At = before.At; p.New {
		d.At = m.Progress.Now().UTC().Truncate(time.Second)
	}
	d.Left = before.Others(d.Image)
	return p, completeDownload(ctx, m, d, content)
}

// recordedDownload returns the download in the journal; zero if there is none.
func recordedDownload(m *machine.Machine) (Download, error) {
	d, err := DownloadIn(m.Progress.Content)
	if d == nil {
		d = &Download{}
	}
	return *d, err
}

// pull checks and pulls what a plan needs, and sets the names and the image of d.
func pull(ctx context.Context, c *pivot.Converger, plan pivot.Plan, d *Download) (pivot.Plan, error) {
	d.Names = imagesByName(plan.Request(), plan.To())
	plan, err := c.Download(ctx, plan)
	if err == nil && plan.Image.Changed {
		d.Image = plan.To().Image
	}
	return plan, err
}

// pinned returns the request of a plan with the images that its tags were resolved to: what was
// compared is what will be deployed.
func pinned(plan pivot.Plan) pivot.Request {
	req, to := plan.Request(), plan.To()
	req.Image, req.Packages.Source = to.Image.Pinned(), to.Packages.Source
	return req
}

// imagesByName maps the requested references, which may be tags, to the images that were found.
func imagesByName(req pivot.Request, found pivot.Target) map[imageref.Reference]pivot.Image {
	names := map[imageref.Reference]pivot.Image{}
	if !req.Image.IsZero() {
		names[req.Image.Name] = found.Image.Pinned()
	}
	if source := req.Packages.Source; !source.IsZero() {
		names[source.Name] = found.Packages.Source.Pinned()
	}
	return names
}

// beginPull records an image in the journal before it is pulled, so that the next command that
// pulls removes what a crash or a failure leaves behind.
func beginPull(m *machine.Machine, image pivot.Image) error {
	before, err := recordedDownload(m)
	if err != nil || image.Same(before.Image) || slices.ContainsFunc(before.Left, image.Same) {
		return err
	}
	before.Left = append(slices.Clone(before.Left), image)
	return saveDownload(m, &before)
}

// completeDownload records a download in the journal, and removes what is left of the
// previous one.
func completeDownload(ctx context.Context, m *machine.Machine, d Download, content []byte) error {
	if content != nil {
		if err := m.Progress.Journal.Store(content); err != nil {
			return err
		}
	}
	if err := saveDownload(m, new(d)); err != nil || len(d.Left) == 0 {
		return err
	}
	if err := m.Pulled().Remove(ctx, d.Left); err != nil {
		return err
	}
	d.Left = nil
	return saveDownload(m, &d)
}

// saveDownload sets the journal's download; nil removes it.
func saveDownload(m *machine.Machine, d *Download) error {
	return m.Progress.Amend(func(r *pivot.JournalContent) error {
		if d == nil {
			r.DropPart(partDownloaded)
			return nil
		}
		return d.KeepIn(r)
	})
}

// noteDownloaded notes what was downloaded and which command applies it.
func noteDownloaded(m *machine.Machine, p Downloaded) error {
	d, err := recordedDownload(m)
	if err != nil {
		return err
	}
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
	command := map[bool]string{true: "rebase", false: "apply"}[d.MachineConfig == ""]
	m.Progress.Note("what is left: pivot " + command + " --from-downloaded commits it, without asking a registry for an image")
	if len(p.Packages) > 0 {
		m.Progress.Note("packages are fetched when it is applied, for which the network is needed then")
	}
	return nil
}

// dropUsedDownload removes a download once the machine, or its next boot, has what it was for. If
// this run has moved the machine, what earlier runs left is removed as well. downloaded says that
// this run has used the download. A failure is only
// noted, since it does not affect the machine.
func dropUsedDownload(ctx context.Context, m *machine.Machine, image pivot.Image, downloaded, moved bool) {
	d, err := recordedDownload(m)
	if err != nil {
		m.Progress.Note(fmt.Sprintf("what was downloaded stays: %v", err))
		return
	}
	used, rest := []pivot.Image{image}, &d
	switch {
	case downloaded, d.Image.Same(image):
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
	err = m.Pulled().Remove(context.WithoutCancel(ctx), used)
	if err == nil {
		err = saveDownload(m, rest)
	}
	if err != nil {
		m.Progress.Note(fmt.Sprintf("what was downloaded stays: %v", err))
	}
}
