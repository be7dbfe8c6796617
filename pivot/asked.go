package pivot

import (
	"cmp"
	"context"

	"machine-pivot/kargs"
)

// target is what is asked for, with the image pinned to its content: once, so that
// what is planned, pulled and proven is the same. What would fail whatever a tag names
// is found before the network is asked.
func (c *Converger) target(ctx context.Context, ask Ask) (Target, error) {
	target := Target{Kargs: ask.Kargs, Entries: c.know(ask.Entries), Units: ask.Units, Packages: ask.Packages}
	if pinned(ask.Image) && pinned(ask.Packages.Source) {
		target.Image = ask.Image
		return target, nil
	}
	err := c.checkWithoutImage(ctx, ask, target)
	if err == nil {
		target.Image, err = c.pin(ctx, ask.Image)
	}
	if err == nil {
		target.Packages.Source, err = c.pin(ctx, ask.Packages.Source)
	}
	return target, err
}

// pinned reports whether an image, if there is one, is named by its content.
func pinned(image Image) bool { return image.IsZero() || image.Digest != "" }

// pin is an image named by its content.
func (c *Converger) pin(ctx context.Context, image Image) (Image, error) {
	if pinned(image) {
		return image, nil
	}
	return c.Images.Resolve(ctx, image)
}

// recall adds to target what is chosen for the kernel arguments of its image's own, and
// what an earlier boot learned of that image.
func (c *Converger) recall(ask Ask, target Target) Target {
	if target.Image.IsZero() {
		return target
	}
	record := c.Progress.Record
	known, apply := record.Target, ask.ImageKargs.Apply
	if !known.Image.Same(target.Image) {
		known = Target{}
	} else {
		target.Image.Commit, target.Image.Version = known.Image.Commit, known.Image.Version
		if !ask.ImageKargs.ForThisRun && (record.WasCommitted() || record.Phase == PhaseDone) {
			apply = known.Kargs.Image != nil
		}
	}
	if apply {
		target.Kargs.Image = cmp.Or(known.Kargs.Image, &kargs.ImageChange{})
	}
	return target
}
