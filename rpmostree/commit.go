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

// runtimeDir is libostree's directory in /run, as libostree names it.
const runtimeDir = "/run/ostree"

// Commit finalizes the staged deployment with the files laid over the /etc that
// libostree merges, and with the request's kernel arguments. The commit point is
// libostree's one rename of /boot/loader.
//
// Only the private view ever has an unlocked staged deployment, so that nobody
// else can finalize it without the files: on the host it is locked, and then gone.
func (e *Ostree) Commit(ctx context.Context, r pivot.Request) error {
	staged, err := e.checkStaged(r)
	if err != nil { // it was right when it was prepared
		return fault.New(fault.Unavailable, "somebody else changed what was staged: %w", err).
			WithHint("stop what updates this host by itself (rpm-ostree status names it) and try again")
	}
	if r, err = r.ForCommit(staged.Target.Checksum.String()); err != nil {
		return err
	}
	state, err := staged.Unlocked(r.Kargs)
	if err != nil {
		return err
	}
	booted, err := e.Sysroot.Booted()
	if err != nil {
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
		if err := applyLabels(booted.Path, known); err != nil {
			return err
		}
		if err := forget(onHost); err != nil {
			return err
		}
		if _, err := e.Run(ctx, "ostree", "admin", "finalize-staged"); err != nil {
			return err
		}
		return e.labelLate(staged, unknown)
	}
	views, err := e.etcWith(booted, staged.Target.Checksum, r.Entries)
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
	return e.checkCommitted(r, labels)
}

// forget takes the staged state away from the host, and only then its lock. From
// here on a failure leaves a directory that no boot entry names, which libostree
// cleans up; a state that stayed behind would let the next staging remove the
// directory of a deployment that is the next boot by then.
func forget(onHost *os.Root) error {
	for _, name := range []string{ostree.StagedFile, ostree.LockFile} {
		if err := onHost.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}
