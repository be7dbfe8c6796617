package rpmostree

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/ostree"
	"machine-pivot/pivot"
)

// runtimeDir is libostree's directory in /run.
const runtimeDir = "/run/ostree"

// Commit finalizes the staged deployment with the request's kernel arguments, and with the
// entries overlaid on the /etc that libostree merges. The commit point is libostree's rename of
// /boot/loader.
//
// The staged deployment is released and unlocked only in a private mount namespace, so that no other
// program can finalize it without the entries. On the host it is held back, and then removed.
func (e *Ostree) Commit(ctx context.Context, r pivot.Spec) error {
	return e.orTakenBack(ctx, r, func() error { return e.commitOnce(ctx, r) })
}

func (e *Ostree) commitOnce(ctx context.Context, r pivot.Spec) error {
	staged, err := e.checkStaged(r)
	if err != nil { // Prepare has checked it, so it was changed since then
		return fault.New(fault.Unavailable, "somebody else changed what was staged: %w", err).
			WithHint("stop what updates this host by itself (rpm-ostree status names it) and try again")
	}
	booted, err := e.Sysroot.Booted()
	if err != nil {
		return err
	}
	keys, err := e.keysOf(booted)
	if err != nil {
		return err
	}
	released, err := staged.Released()
	if err != nil {
		return err
	}
	state, err := released.Unlocked(r.Kargs, keys)
	if err != nil {
		return err
	}
	if r, err = e.forDeployment(r, booted, staged.Target.Checksum); err != nil {
		return err
	}
	onHost, err := os.OpenRoot(e.Sysroot.RunDir())
	if err != nil {
		return fmt.Errorf("cannot finalize the staged deployment: %w", err)
	}
	defer onHost.Close()
	labels, err := e.labels(booted, staged.Target.Checksum, r.Entries)
	if err != nil {
		return err
	}
	known, unknown := e.byPolicy(labels)
	finalize := func() error {
		if err := e.keepPrevious(ctx, booted, staged.Target.Checksum); err != nil {
			return err
		}
		if err := applyLabels(booted.Path, known); err != nil {
			return err
		}
		if err := dropStaged(onHost); err != nil {
			return err
		}
		if _, err := e.Run(ctx, "ostree", "admin", "finalize-staged"); err != nil {
			return err
		}
		return e.labelLate(staged, unknown)
	}
	views, err := e.viewsFor(booted, staged.Target.Checksum, r.Entries)
	if err != nil {
		return err
	}
	err = hostfiles.WithOverlays(finalize, append(views, hostfiles.Overlay{
		Dir: e.Sysroot.RunDir(), At: runtimeDir, Files: []hostfiles.File{
			hostfiles.NewFile(runtimeDir+"/"+ostree.StagedFile, 0o644, state),
			hostfiles.Default(runtimeDir + "/" + ostree.LockFile),
		}})...)
	if err != nil {
		return fmt.Errorf("cannot finalize the staged deployment: %w", err)
	}
	next, err := e.Sysroot.Default()
	if err == nil {
		err = e.addKeys(next, keys)
	}
	if err != nil {
		return err
	}
	return e.checkCommitted(r, labels)
}

// dropStaged removes the staged state from the host, and only then its lock. A failure after that
// leaves a deployment directory without a boot entry, which libostree cleans up. If the state
// stayed behind instead, the next staging could remove the directory of a deployment that is the
// next boot by then.
func dropStaged(onHost *os.Root) error {
	for _, name := range []string{ostree.StagedFile, ostree.LockFile} {
		if err := onHost.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}
