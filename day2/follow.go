package day2

import (
	"cmp"
	"context"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/osimage/imageref"
	"machine-pivot/internal/ostree"
	"machine-pivot/pivot"
	"machine-pivot/rpmostree"
)

// followed returns the reference with the tag that the machine follows: that of the system that the next boot starts.
func (r *Rebase) followed(ctx context.Context) (tag imageref.Reference, err error) {
	state, err := r.Host.Observe(ctx, pivot.Target{})
	if err != nil {
		return tag, err
	}
	image := state.Default.Image
	if tag = image.Follows(); tag.IsZero() {
		err = fault.New(fault.Refused, "cannot upgrade this machine: it follows no tag, it runs %s", cmp.Or(image.Name.String(), "no image")).
			WithHint("name the image by its tag once, and the machine follows that: pivot rebase HOST/PATH:TAG")
	}
	return tag, err
}

// follow makes the system that the next boot starts follow what an administrator has asked for by name, if that is the
// image that it has already. The same content under another name needs no other deployment. Only the origin of the
// deployment and a ref change.
func (m *move) follow(plan pivot.Plan) error {
	image, next := plan.To().Image, plan.From().Default
	if !m.follows || !next.Runs(image) || next.Manifest == "" || image.Follows() == next.Image.Follows() {
		return nil
	}
	commit, err := ostree.ParseChecksum(next.Commit)
	if err != nil {
		return err
	}
	reference, err := m.Pulled().Name(image, cmp.Or(next.Base, next.Commit))
	if err != nil {
		return err
	}
	of := ostree.DeploymentRef{Stateroot: next.Stateroot, Checksum: commit, Serial: next.Serial}
	if err := rpmostree.Follow(m.Host.Sysroot(), m.Host.Run, of, reference); err != nil {
		return err
	}
	if tag := image.Follows(); tag.IsZero() {
		m.Progress.Note("the machine stays with " + image.Reference().String() + " from now on, and follows no tag")
	} else {
		m.Progress.Note("the machine follows " + tag.String() + " from now on, which is the image that it has")
	}
	return nil
}
