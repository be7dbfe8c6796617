package rpmostree

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/ostree"
	"machine-pivot/kargs"
	"machine-pivot/pivot"
)

// checkStaged compares the staged state with the request, field by field. Of the kernel arguments
// it compares only root=, because Commit passes the request's arguments to libostree.
func (e *Ostree) checkStaged(r pivot.Spec) (*ostree.Staged, error) {
	staged, err := e.Sysroot.Staged()
	if err != nil {
		return nil, err
	}
	next, err := e.Sysroot.Default()
	if merged := next.Checksum.String() == r.Merge.Commit && next.Serial == r.Merge.Serial; staged == nil && err == nil && !merged && carries(next, wantedCommit(r)) {
		return nil, fault.New(fault.Unavailable, "cannot use the staged deployment of %s: somebody else has made it the next boot, without the files that it should have", r.Commit).
			WithHint("stop what updates this host by itself (rpm-ostree status names it) and try again, before a reboot")
	}
	if staged == nil {
		return nil, fault.New(fault.Internal, "cannot use the staged deployment of %s: nothing is staged", r.Commit)
	}
	target, err := e.Sysroot.Deployment(staged.Target)
	if err != nil {
		return nil, err
	}
	wrong := func(what string, got, want any) (*ostree.Staged, error) {
		return nil, fmt.Errorf("cannot trust the staged deployment: %s is %v, wanted %v", what, got, want)
	}
	booted, err := e.Sysroot.Booted()
	if err != nil {
		return nil, err
	}
	// The staged state may have a root= that the request has lost.
	lost := lostRoot(r, slices.Concat(r.Merge.Options, kargs.Line(staged.KernelArguments)))
	switch {
	case !carries(target, wantedCommit(r)):
		return wrong("commit", target.Base, wantedCommit(r))
	case target.Stateroot != r.Merge.Stateroot:
		return wrong("stateroot", target.Stateroot, r.Merge.Stateroot)
	case staged.Merge.Checksum.String() != r.Merge.Commit || staged.Merge.Serial != r.Merge.Serial:
		return wrong("the deployment that its /etc is merged from", staged.Merge.Checksum, r.Merge.Commit)
	case imageOf(target.Origin) != imageWanted(r, target.Origin):
		return wrong("the image in its origin", imageOf(target.Origin), imageWanted(r, target.Origin))
	case !staged.Locked || !staged.Held:
		return wrong("lock", "none", "set")
	case lost != "":
		return wrong("kernel argument root=", "missing", lost)
	}
	if err := checkLayers(booted.Origin, target.Origin, r.Packages); err != nil {
		return nil, err
	}
	return staged, e.checkDemands(target, r)
}

// lostRoot returns the value of the root= that line has if the request has none, and otherwise "".
// One root= may replace another, as where a configuration selects a multipath device.
func lostRoot(r pivot.Spec, line kargs.Line) string {
	had := line.Values("root")
	if len(had) == 0 || len(r.Kargs.Values("root")) > 0 {
		return ""
	}
	return had[len(had)-1]
}

// carries reports whether a deployment's commit is commit, or is layered on top.
func carries(d ostree.Deployment, commit string) bool {
	return d.Checksum.String() == commit || d.Base.String() == commit
}

// wantedCommit returns the commit that a deployment for the request must carry. If only packages
// change on top of the booted image, it is that image's commit.
func wantedCommit(r pivot.Spec) string {
	if r.Image.IsZero() && !r.Packages.IsZero() {
		return cmp.Or(r.Merge.Base, r.Commit)
	}
	return r.Commit
}

// imageOf returns the name of the image in an origin.
func imageOf(o ostree.Origin) string {
	if c := o.ContainerImageReference(); c != "" {
		return c
	}
	return o.CustomURL()
}

// imageWanted returns the name that the origin must have; any name is right if the image stays.
func imageWanted(r pivot.Spec, have ostree.Origin) string {
	switch {
	case r.Image.IsZero():
		return imageOf(have)
	case r.Image.Native:
		return r.Image.Container()
	}
	return customURL(r.Image)
}

// checkPrepared compares the staged deployment with the request, and checks what the commit will
// need.
func (e *Ostree) checkPrepared(ctx context.Context, r pivot.Spec) error {
	staged, err := e.checkStaged(r)
	if err != nil {
		return err
	}
	if err := e.checkObjects(ctx, staged.Target.Checksum, r); err != nil {
		return err
	}
	if err := e.CheckSpace(ctx, staged.Target.Checksum.String()); err != nil {
		return err
	}
	booted, err := e.Sysroot.Booted()
	if err != nil {
		return err
	}
	if r, err = e.forDeployment(r, booted, staged.Target.Checksum); err != nil {
		return err
	}
	if err := e.checkRefresh(ctx, booted, staged.Target.Checksum); err != nil {
		return err
	}
	if err := e.checkEntries(ctx, booted, staged.Target.Checksum, r.Entries); err != nil {
		return err
	}
	return e.checkLabels(booted, staged, r)
}

// checkCommitted compares the default deployment with the request, and the labels of its files with
// the wanted ones.
func (e *Ostree) checkCommitted(r pivot.Spec, labels []labelled) error {
	all, err := e.Sysroot.Deployments()
	if err != nil {
		return err
	}
	if len(all) == 0 || !carries(all[0], wantedCommit(r)) {
		return fault.New(fault.Internal, "ostree reported success, but the first entry of the boot menu is not the new system").
			WithHint("see ls -l /boot/loader/entries: another program may have changed the boot menu; then run the command again")
	}
	if err := checkDeployment(all[0], r); err != nil {
		return err
	}
	return readLabels(all[0].Path, labels)
}

// checkDeployment compares a deployment's boot entry and files with the request.
func checkDeployment(d ostree.Deployment, r pivot.Spec) error {
	if options := kargs.Split(d.Entry.Options); !options.EqualButOstree(r.Kargs) {
		return fmt.Errorf("cannot trust the new boot entry: its options are %q, wanted %q", options, r.Kargs)
	}
	return checkArrived(d, r.Entries)
}
