package pivot

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"slices"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/hostfiles"
	"machine-pivot/kargs"
)

// complete returns the complete target of a request: with its images pinned to digests, with what
// earlier boots have learned about them, and with the contributors' entries.
func (c *Converger) complete(ctx context.Context, req Request) (Target, error) {
	target := Target{
		Kargs: req.Kargs, Entries: c.know(slices.Concat(req.Entries, req.OwnEntries)), Units: req.Units,
		Packages: req.Packages, MachineConfig: req.MachineConfig, WithoutBoundImages: req.WithoutBoundImages,
	}
	if err := c.pinImages(ctx, req, &target); err != nil {
		return target, err
	}
	c.recall(req, &target)
	if journal := c.Progress.Content; journal.WasCommitted() && !req.ByHand {
		// A system that came up without the entries of the commit has nothing to adopt.
		if known := target.With(journal.Target.Entries); known.Same(journal.Target) {
			return known, nil
		}
	}
	return c.adopt(target)
}

// pinImages sets the target's images. Tags are resolved only once per run, so that the same content is planned, pulled
// and verified. Checks that do not depend on the image come before, because resolving needs the network; but not those
// that only a change needs, which depends on the image. A run that changes nothing is not refused for what it does not
// need.
func (c *Converger) pinImages(ctx context.Context, req Request, target *Target) error {
	if pinned(req.Image) && pinned(req.Packages.Source) {
		target.Image = req.Image
		return nil
	}
	err := c.checkWithoutImage(ctx, req, *target)
	if err == nil {
		target.Image, err = c.pin(ctx, req.Image)
	}
	if err == nil {
		target.Packages.Source, err = c.pin(ctx, req.Packages.Source)
	}
	return err
}

// pinned reports whether image has a digest, or is zero.
func pinned(image Image) bool { return image.IsZero() || image.Digest != "" }

// pin returns the image with its digest.
func (c *Converger) pin(ctx context.Context, image Image) (Image, error) {
	if pinned(image) {
		return image, nil
	}
	return c.Images.Resolve(ctx, image)
}

// recall sets the choice about the kernel arguments that the target's image brings, and what an
// earlier boot has learned about that image.
func (c *Converger) recall(req Request, target *Target) {
	if target.Image.IsZero() {
		return
	}
	journal := c.Progress.Content
	known, apply := journal.Target, req.ImageKargs.Apply
	if !known.Image.Same(target.Image) {
		known = Target{}
	} else {
		target.Image.Commit, target.Image.Version = known.Image.Commit, known.Image.Version
		// A committed choice counts more than the settings: a first boot that was started with
		// --image-kargs=apply is verified by the unit, which has no flags.
		if !req.ImageKargs.ForThisRun && (journal.WasCommitted() || journal.Phase == PhaseDone) {
			apply = known.Kargs.Image != nil
		}
	}
	if apply {
		target.Kargs.Image = cmp.Or(known.Kargs.Image, &kargs.ImageChange{})
	}
}

// withImageSettled returns the target of a new request. If its image runs already, that image's kernel
// arguments were brought when the machine came to it: they are as before now, and what was changed by
// hand since stays. A run that proves, retries or repairs an earlier change needs that change instead.
func (t Target) withImageSettled(state State) Target {
	if brought := t.Kargs.Image; brought != nil && state.Booted.Runs(t.Image) {
		t.Kargs.Image = &kargs.ImageChange{Before: brought.Now, Now: brought.Now}
	}
	return t
}

// adopt adds the contributors' entries, most of which the machine already has, to the target.
// libostree would carry them over anyway. As part of the target they are also read back from
// the new deployment, proven on the next boot, and verified from then on.
func (c *Converger) adopt(target Target) (Target, error) {
	for _, contributor := range c.Contributors {
		entries, err := contributor.Entries()
		if err != nil {
			return target, err
		}
		target = target.With(c.know(entries))
	}
	return target, nil
}

// adopted returns the adopted ones of a target's files. Unlike the requested ones, a later boot
// could not read them again.
func adopted(files []hostfiles.File, req Request) []hostfiles.File {
	requested := hostfiles.Paths(slices.Concat(req.Entries, req.OwnEntries))
	return slices.DeleteFunc(slices.Clone(files), func(f hostfiles.File) bool { return requested[f.Path] })
}

// know remembers the contents of files for this run, because a target has only digests, and
// returns the files' entries.
func (c *Converger) know(files []hostfiles.File) []hostfiles.Entry {
	if c.contents == nil {
		c.contents = map[hostfiles.Digest][]byte{}
	}
	for _, f := range files {
		c.contents[f.Digest] = f.Content
	}
	return hostfiles.Entries(files)
}

// files returns the entries of a target with their contents, which this run has read or an
// earlier attempt has kept.
func (c *Converger) files(entries []hostfiles.Entry) ([]hostfiles.File, error) {
	files := make([]hostfiles.File, len(entries))
	for i, e := range entries {
		content, known := c.contents[e.Digest]
		if !known && e.Kind == hostfiles.KindFile {
			var err error
			content, err = c.Progress.Journal.Content(e.Digest)
			if errors.Is(err, fs.ErrNotExist) {
				return nil, fault.New(fault.Refused, "cannot continue the change: the saved content of %s is missing: %w", e.Path, err).
					WithHint("start over: mv %s %[1]s.old, and run the command again", c.Progress.Journal.Path)
			}
			if err != nil {
				return nil, err
			}
		}
		files[i] = hostfiles.File{Entry: e, Content: content}
	}
	return files, nil
}
