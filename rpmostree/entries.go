package rpmostree

import (
	"fmt"
	"path/filepath"
	"slices"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/ostree"
)

// libostree's merge makes entries part of the atomic commit: it applies the differences between
// the booted deployment's /usr/etc and /etc to the new /etc, and a private overlay adds the
// entries to the booted /etc. Entries that the merge would not carry over must be refused before
// the commit. Source: merge_configuration_from in libostree's ostree-sysroot-deploy.c; tested
// with 2022.7 and 2025.2.

// etcWith returns an overlay of the booted deployment's /etc with the entries, and, if the merge
// for commit needs it, one of its /usr/etc.
//
// The merge removes from the new /etc what the booted /usr/etc has and the booted /etc lacks. To
// make it remove something that only the commit has, the overlay of /usr/etc shows it too. The
// directories above it are shown in /etc as well: if one is missing in /etc, the merge removes
// the whole directory.
func (e *Ostree) etcWith(booted ostree.Deployment, commit ostree.Checksum, entries []hostfiles.File) ([]hostfiles.Overlay, error) {
	etc, image := filepath.Join(booted.Path, "etc"), filepath.Join(booted.Path, "usr/etc")
	shown, err := e.onlyIn(commit, image, entries)
	if err != nil {
		return nil, err
	}
	views := []hostfiles.Overlay{{Dir: etc, At: "/etc", Image: image, Files: entries}}
	if len(shown) == 0 {
		return views, nil
	}
	for _, f := range shown {
		dirs, err := madeFor(booted.Path, f.Path)
		if err != nil {
			return nil, err
		}
		for _, dir := range dirs[1:] {
			views[0].Files = append(slices.Clip(views[0].Files), hostfiles.NewDirectory(dir, 0o755))
		}
	}
	return append(views, hostfiles.Overlay{Dir: image, At: "/etc", Files: shown}), nil
}

// onlyIn returns the entries of kind absent that commit's /usr/etc has and image, the booted
// /usr/etc, lacks. They are returned as links, which stand for whatever the commit has.
func (e *Ostree) onlyIn(commit ostree.Checksum, image string, entries []hostfiles.File) (shown []hostfiles.File, err error) {
	absent := slices.DeleteFunc(slices.Clone(entries), func(f hostfiles.File) bool { return f.Kind != hostfiles.KindAbsent })
	if len(absent) == 0 {
		return nil, nil
	}
	repo, err := ostree.OpenRepo(e.Sysroot.RepoPath())
	if err != nil {
		return nil, err
	}
	for _, f := range absent {
		ships, err := repo.HasPath(commit, "usr"+f.Path)
		if err != nil {
			return nil, err
		}
		_, has, err := hostfiles.Read(filepath.Dir(image), f.Path)
		if err != nil {
			return nil, err
		}
		if ships && !has {
			shown = append(shown, hostfiles.NewLink(f.Path, "/dev/null"))
		}
	}
	return shown, nil
}

// checkEntries returns an error if entries cannot get into the new /etc of commit. It changes
// nothing.
func (e *Ostree) checkEntries(booted ostree.Deployment, commit ostree.Checksum, entries []hostfiles.File) error {
	if len(entries) == 0 {
		return nil
	}
	repo, err := ostree.OpenRepo(e.Sysroot.RepoPath())
	if err != nil {
		return err
	}
	for _, f := range entries {
		if err := checkMerge(repo, commit, f.Entry); err != nil {
			return err
		}
	}
	views, err := e.etcWith(booted, commit, entries)
	if err != nil {
		return err
	}
	// This fails if something is in the way, such as a directory that is not empty.
	if err := hostfiles.WithOverlays(func() error { return nil }, views...); err != nil {
		return fault.New(fault.Refused, "cannot change /etc: %w", err).
			WithHint("move what stands at the path out of the way, or ask for something else there")
	}
	return nil
}

// checkMerge returns an error if libostree's merge would fail because of an entry, or would leave
// it out, given what commit has at its path.
func checkMerge(repo *ostree.Repo, commit ostree.Checksum, e hostfiles.Entry) error {
	if e.Kind == hostfiles.KindDefault {
		return nil
	}
	info, found, err := repo.DirInfo(commit, "usr"+e.Path)
	if err != nil || !found {
		return err
	}
	const hint = "leave the entry out, or build the image with it"
	if e.Kind != hostfiles.KindDirectory {
		return fault.New(fault.Refused, "cannot put %s %s: the new image has a directory there, which libostree does not replace", e.Kind, e.Path).WithHint(hint)
	}
	has := hostfiles.NewDirectory(e.Path, hostfiles.ModeOf(info.Mode)).Entry
	has.UID, has.GID = int(info.UID), int(info.GID)
	if e != has {
		return fault.New(fault.Refused, "cannot make %s a %s: the new image has it as a %s, and libostree leaves it so", e.Path, e, has).WithHint(hint)
	}
	return nil
}

// checkArrived returns an error if a deployment's /etc differs from the wanted entries.
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
