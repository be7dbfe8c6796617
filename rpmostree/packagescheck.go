package rpmostree

import (
	"context"
	"path/filepath"
	"strings"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/host"
	"machine-pivot/internal/ostree"
	"machine-pivot/pivot"
)

// checkNoPackages returns an error if the staged deployment still needs changes of packages, as
// far as this is known without rpm-ostree.
func (e *Ostree) checkNoPackages(r pivot.Spec) error {
	staged, err := e.Sysroot.Staged()
	if err != nil || staged == nil {
		return err
	}
	d, err := e.Sysroot.Deployment(staged.Target)
	if err != nil {
		return err
	}
	if changes := host.OnTop(d).Changes(r.Packages); len(changes) > 0 {
		return cannotChange(changes)
	}
	return nil
}

// Commit implements pivot.Engine. In addition to Ostree.Commit, it checks the packages before and
// after the commit.
func (e *RpmOstree) Commit(ctx context.Context, r pivot.Spec) error {
	if r.Packages.IsZero() {
		return e.Ostree.Commit(ctx, r)
	}
	return e.orTakenBack(ctx, r, func() error { return e.commitPackages(ctx, r) })
}

func (e *RpmOstree) commitPackages(ctx context.Context, r pivot.Spec) error {
	if _, err := e.checkStaged(r); err == nil { // otherwise Ostree.Commit reports the error
		p := packages{engine: e, request: r}
		if changes, err := p.missing(ctx); err != nil {
			return err
		} else if len(changes) > 0 {
			return fault.New(fault.Unavailable, "somebody else changed what was staged: it still needs %s", changeList(changes))
		}
	}
	if err := e.commitOnce(ctx, r); err != nil {
		return err
	}
	all, err := e.Sysroot.Deployments()
	if err != nil {
		return err
	}
	have, err := e.packagesOf(ctx, all[0], r.Packages)
	if err != nil {
		return err
	}
	if changes, lacks := have.Changes(r.Packages), have.Lacks(r.Packages); len(changes)+len(lacks) > 0 {
		return fault.New(fault.Internal, "cannot trust the new deployment: it lacks the packages %q, and needs %q", lacks, changeList(changes))
	}
	return checkKernel(all[0])
}

// checkKernel returns an error unless a deployment has exactly one kernel and its boot entry
// starts that.
func checkKernel(d ostree.Deployment) error {
	kernels, err := filepath.Glob(filepath.Join(d.Path, "usr/lib/modules/*/vmlinuz"))
	if err != nil || len(kernels) != 1 {
		return fault.New(fault.Internal, "cannot trust the new deployment: it has %d kernels, not one (%v)", len(kernels), err)
	}
	if release := filepath.Base(filepath.Dir(kernels[0])); !strings.HasSuffix(d.Entry.Linux, "-"+release) {
		return fault.New(fault.Internal, "cannot trust the new boot entry: it starts %s, and the deployment has the kernel %s", d.Entry.Linux, release)
	}
	return nil
}
