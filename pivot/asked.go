package pivot

import (
	"cmp"
	"context"

	"machine-pivot/kargs"
)

// target returns the requested target with its images pinned to digests. Tags are resolved only
// once per run, so that the same content is planned, pulled and verified. Checks that do not
// depend on the image run before the network is used.
func (c *Converger) target(ctx context.Context, ask Ask) (Target, error) {
	target := Target{Kargs: ask.Kargs, Entries: c.know(ask.Entries), Units: ask.Units, Packages: ask.Packages, MachineConfig: ask.MachineConfig}
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

// pinned reports whether image has a digest, or is zero.
func pinned(image Image) bool { return image.IsZero() || image.Digest != "" }

// pin returns the image with its digest.
func (c *Converger) pin(ctx context.Context, image Image) (Image, error) {
	if pinned(image) {
		return image, nil
	}
	return c.Images.Resolve(ctx, image)
}

// recall completes target with the choice about the kernel arguments that its image brings, and
// with what an earlier boot learned about that image.
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
