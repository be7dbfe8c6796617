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

// checkStaged holds the staged state against the request, field by field. Of its
// kernel arguments only root= counts: Commit hands libostree the request's.
func (e *Ostree) checkStaged(r pivot.Request) (*ostree.Staged, error) {
	staged, err := e.Sysroot.Staged()
	if err != nil {
		return nil, err
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
	// What was staged may know better than the request what the machine boots by.
	lost := missing(slices.Concat(r.Merge.Options.Values("root"), kargs.Line(staged.KernelArguments).Values("root")), r.Kargs.Values("root"))
	switch {
	case !carries(target, asked(r)):
		return wrong("commit", target.Base, asked(r))
	case target.Stateroot != r.Merge.Stateroot:
		return wrong("stateroot", target.Stateroot, r.Merge.Stateroot)
	case staged.Merge.Checksum.String() != r.Merge.Commit || staged.Merge.Serial != r.Merge.Serial:
		return wrong("the deployment whose /etc is merged", staged.Merge.Checksum, r.Merge.Commit)
	case imageOf(target.Origin) != imageWanted(r, target.Origin):
		return wrong("the image in its origin", imageOf(target.Origin), imageWanted(r, target.Origin))
	case !staged.Locked:
		return wrong("lock", "none", "set")
	case len(lost) > 0:
		return wrong("kernel argument root=", "missing", lost)
	}
	return staged, e.checkDemands(target, r)
}

// carries reports whether a deployment is of the commit, or has it as the base
// of what is layered.
func carries(d ostree.Deployment, commit string) bool {
	return d.Checksum.String() == commit || d.Base.String() == commit
}

// asked is the commit that a deployment for the request must carry: where packages change
// on top of the booted image, that image's.
func asked(r pivot.Request) string {
	if r.Image.IsZero() && !r.Packages.IsZero() {
		return cmp.Or(r.Merge.Base, r.Commit)
	}
	return r.Commit
}

// imageOf is what an origin names the image by.
func imageOf(o ostree.Origin) string {
	if c := o.ContainerImageReference(); c != "" {
		return c
	}
	return o.CustomURL()
}

// imageWanted is what the origin must name it by; any name if the image stays.
func imageWanted(r pivot.Request, have ostree.Origin) string {
	switch {
	case r.Image.IsZero():
		return imageOf(have)
	case r.Image.Container != "":
		return r.Image.Container
	}
	return customURL(r.Image)
}

func missing(want, have []string) (lost []string) {
	for _, v := range want {
		if !slices.Contains(have, v) {
			lost = append(lost, v)
		}
	}
	return lost
}

// checkPrepared holds what is staged against the request, and what the commit will
// need of the running system.
func (e *Ostree) checkPrepared(ctx context.Context, r pivot.Request) error {
	staged, err := e.checkStaged(r)
	if err != nil {
		return err
	}
	if r, err = r.ForCommit(staged.Target.Checksum.String()); err != nil {
		return err
	}
	booted, err := e.Sysroot.Booted()
	if err != nil {
		return err
	}
	if err := e.checkRefresh(ctx, booted, staged.Target.Checksum); err != nil {
		return err
	}
	if err := e.checkEntries(booted, staged.Target.Checksum, r.Entries); err != nil {
		return err
	}
	return e.checkLabels(booted, staged, r)
}

// checkCommitted holds what the next boot will start against the request, and the
// labels of its files against those that were wanted.
func (e *Ostree) checkCommitted(r pivot.Request, labels []labelled) error {
	all, err := e.Sysroot.Deployments()
	if err != nil {
		return err
	}
	if len(all) == 0 || !carries(all[0], asked(r)) {
		return fault.New(fault.Internal, "cannot trust the new deployment: ostree reported success but the default boot entry is another one")
	}
	if err := checkDeployment(all[0], r); err != nil {
		return err
	}
	return readLabels(all[0].Path, labels)
}

// checkDeployment holds a deployment's boot entry and files against the request.
func checkDeployment(d ostree.Deployment, r pivot.Request) error {
	if options := kargs.Split(d.Entry.Options); !sameArguments(options, r.Kargs) {
		return fmt.Errorf("cannot trust the new boot entry: its options are %q, wanted %q", options, r.Kargs)
	}
	return checkArrived(d, r.Entries)
}

// sameArguments compares to the letter, but for ostree=, which libostree writes anew.
func sameArguments(got, want kargs.Line) bool { return withoutOstree(got).Equal(withoutOstree(want)) }

func withoutOstree(l kargs.Line) kargs.Line {
	var rest kargs.Line
	for _, arg := range l {
		if len(kargs.Line{arg}.Values("ostree")) == 0 {
			rest = append(rest, arg)
		}
	}
	return rest
}
