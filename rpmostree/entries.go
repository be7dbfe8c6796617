package rpmostree

import (
	"context"
	"fmt"
	"path/filepath"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/ostree"
)

// libostree's merge makes entries part of the atomic commit. It applies the differences between the booted deployment's
// /usr/etc and /etc to the new /etc, and private overlays show it both as the entries need it (views.go). Entries that
// the merge would not carry over must be refused before the commit. Source: merge_configuration_from in libostree's
// ostree-sysroot-deploy.c; tested with 2022.7 and 2025.2.

// checkEntries returns an error if entries, which forDeployment has placed, cannot get into the new /etc of commit,
// or if the merge of the booted /etc would fail. It changes nothing.
func (e *Ostree) checkEntries(ctx context.Context, booted ostree.Deployment, commit ostree.Checksum, entries []hostfiles.File) error {
	next, err := e.nextEtc(booted, commit, entries)
	if err != nil {
		return err
	}
	if err := next.checkLocal(); err != nil || len(entries) == 0 {
		return err
	}
	for _, f := range entries {
		if err := e.checkMerge(ctx, next, f.Entry); err != nil {
			return err
		}
	}
	views, err := next.views(entries)
	if err != nil {
		return err
	}
	// This fails if something is in the way, such as a directory that is not empty.
	if err := hostfiles.WithOverlays(func() error { return nil }, views...); err != nil {
		return fault.New(fault.Refused, "cannot change /etc: %w", err).
			WithHint("move what is at that path out of the way, or take the path out of the MachineConfig")
	}
	return nil
}

// checkMerge returns an error if libostree's merge would fail because of an entry, or would leave
// it out, given what the commit has at its path.
func (e *Ostree) checkMerge(ctx context.Context, next nextEtc, want hostfiles.Entry) error {
	if want.Kind == hostfiles.KindDefault {
		return nil
	}
	has, found, err := next.directory(want.Path)
	if err != nil || !found {
		return err
	}
	const hint = "leave the entry out, or build the image with it"
	if want.Kind != hostfiles.KindDirectory {
		return fault.New(fault.Refused, "cannot put %s %s: the new image has a directory there, which libostree does not replace", want.Kind, want.Path).WithHint(hint)
	}
	if want == has.Entry {
		return nil
	}
	tool, err := e.queryTool(ctx, "ostree")
	if err == nil && !tool.since(2021, 5) { // Overlay.Carried
		err = fault.New(fault.Refused, "cannot make %s a %s: the new image has it as a %s, and libostree %s leaves it so", want.Path, want, has, tool.version).WithHint(hint)
	}
	return err
}

// checkArrived returns an error if a deployment's /etc differs from the wanted entries, which forDeployment has placed.
func checkArrived(d ostree.Deployment, entries []hostfiles.File) error {
	for _, want := range entries {
		root, path := d.Path, want.Path
		got, there, err := hostfiles.Read(root, path)
		if err != nil {
			return err
		}
		expected, ships := want, want.Kind != hostfiles.KindAbsent
		if want.Kind == hostfiles.KindDefault {
			if expected, ships, err = hostfiles.Read(filepath.Join(root, "usr"), path); err != nil {
				return err
			}
			ships = ships && expected.Kind != hostfiles.KindPassword // a password is locked by default
		}
		// A user who owns the directory can change it right after the commit: that is drift.
		if (there != ships || there && got.Entry != expected.Entry) && !hostfiles.OfUsers(root, path) {
			return fmt.Errorf("cannot trust the new deployment: its %s is missing or differs", path)
		}
	}
	return nil
}
