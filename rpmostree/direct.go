package rpmostree

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/host"
	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/ostree"
	"machine-pivot/pivot"
)

// Direct is the engine for a system that has not started yet, whose tools run in a
// chroot: "ostree admin deploy" that stages nothing. In an initramfs there is
// no shutdown that would finalize, and libostree from 2025.2 on wants to start a
// unit of the system's when it stages.
//
// It makes nothing before Commit, so there is nothing to discard. What it cannot
// do the started system can: such errors are of kind fault.Later.
type Direct struct {
	Sysroot *ostree.Sysroot
	Run     Run // in the chroot
	// State are directories of the system, beside /etc, whose files were made here: they
	// get the new system's SELinux labels too.
	State []string
}

var _ pivot.Engine = (*Direct)(nil)

// Preflight implements pivot.Engine. Nothing is written. Packages are no reason to step
// aside yet: the image can be imported here, and the started system goes on from there.
func (e *Direct) Preflight(ctx context.Context, plan pivot.Plan) error {
	if len(plan.Packages) > 0 {
		if _, err := os.Stat(filepath.Join(e.Sysroot.Root(), host.RpmOstreePath)); err != nil {
			return cannotChange(plan.Packages)
		}
	}
	return e.checkMove(ctx)
}

// checkMove is an error if the engine cannot make a deployment of another image, as is
// known without one.
func (e *Direct) checkMove(ctx context.Context) error {
	if err := e.plain().checkLayered(); err != nil {
		return fault.New(fault.Later, "%w", err)
	}
	if err := e.plain().checkSandbox(ctx); err != nil {
		return err
	}
	return e.checkBootLoader()
}

// Prepare checks what can be checked before the commit, and changes nothing.
func (e *Direct) Prepare(ctx context.Context, r pivot.Request) error {
	if !r.Image.IsZero() {
		if err := e.checkMove(ctx); err != nil {
			return err
		}
	}
	staged, err := e.Sysroot.Staged()
	if err != nil {
		return err
	}
	if staged != nil {
		return fault.New(fault.Later, "cannot deploy: deployment %s is staged already", staged.Target.ID())
	}
	booted, err := e.Sysroot.Booted()
	if err != nil {
		return err
	}
	if lost := missing(r.Merge.Options.Values("root"), r.Kargs.Values("root")); len(lost) > 0 {
		return fmt.Errorf("cannot deploy: the kernel arguments lack root=%s", strings.Join(lost, ", root="))
	}
	if changes := host.OnTop(booted).Changes(r.Packages); len(changes) > 0 {
		return fault.New(fault.Later, "cannot change packages from here: %s", changeList(changes))
	}
	if err := e.checkNeeds(ctx, r, booted); err != nil {
		return err
	}
	if r, err = r.ForCommit(r.Commit); err != nil {
		return err
	}
	commit, err := ostree.ParseChecksum(r.Commit)
	if err != nil {
		return err
	}
	if err := e.plain().checkRefresh(ctx, booted, commit); err != nil {
		return err
	}
	if err := e.plain().checkEntries(booted, commit, r.Entries); err != nil {
		return err
	}
	return e.plain().free()
}

// Commit makes the deployment with the files laid over the /etc that libostree
// merges. The commit point is libostree's one rename of /boot/loader.
func (e *Direct) Commit(ctx context.Context, r pivot.Request) error {
	booted, err := e.Sysroot.Booted()
	if err != nil {
		return err
	}
	if r, err = r.ForCommit(r.Commit); err != nil {
		return err
	}
	needs, err := e.needs(r, booted)
	switch {
	case err != nil:
	case needs.any():
		err = e.commitBeside(ctx, r, booted, needs)
	default:
		err = e.deploy(ctx, r, booted)
	}
	if err != nil {
		return fmt.Errorf("cannot deploy %s: %w", r.Commit, err)
	}
	return e.plain().checkCommitted(r, nil)
}

// deploy lets libostree make the deployment, with the files over /etc.
func (e *Direct) deploy(ctx context.Context, r pivot.Request, booted ostree.Deployment, options ...string) error {
	commit, err := ostree.ParseChecksum(r.Commit)
	if err != nil {
		return err
	}
	views, err := e.plain().etcWith(booted, commit, r.Entries)
	if err != nil {
		return err
	}
	return hostfiles.WithOverlays(func() error { return e.plain().deploy(ctx, r, booted, options...) }, views...)
}

// Discard implements pivot.Engine: nothing was made.
func (e *Direct) Discard(context.Context) error { return nil }

// plain is the engine of a started system, whose parts this one uses.
func (e *Direct) plain() *Ostree { return &Ostree{Sysroot: e.Sysroot, Run: e.Run} }

// Accept is as for a started system, whose tools these are.
func (e *Direct) Accept(ctx context.Context, p ostree.PrepareRoot) error {
	return e.plain().Accept(ctx, p)
}

// checkBootLoader is an error where the boot entries alone are not what boots:
// zipl, which libostree runs after its rename, wants the machine's own devices.
func (e *Direct) checkBootLoader() error {
	repo, err := ostree.OpenRepo(e.Sysroot.RepoPath())
	if err != nil {
		return err
	}
	if repo.BootLoader() == "zipl" {
		return fault.New(fault.Later, "cannot deploy from here: the boot loader is zipl")
	}
	return nil
}
