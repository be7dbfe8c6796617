package rpmostree

import (
	"fmt"
	"path/filepath"
	"slices"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/ostree"
)

// Entries join the one transaction by libostree's merge: it makes the new /etc of what
// differs between the booted deployment's /usr/etc and its /etc, and that shows the
// entries in a private view. What the merge does not carry over must be refused before.
// Source: merge_configuration_from in libostree's ostree-sysroot-deploy.c; tried with
// 2022.7 and 2025.2.

// etcWith is a view of the booted deployment's /etc with entries, and, where the merge for
// a commit needs it, one of its /usr/etc.
//
// The merge removes from the new /etc what is in /usr/etc here and not in /etc. So what
// only the commit has is shown in /usr/etc too, in a directory that both have: of a
// directory that is missing in /etc it would remove all.
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

// onlyIn are entries that are to be absent which a commit's /usr/etc has, and a deployment's
// has not, as something that stands there.
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

// checkEntries is an error if the new /etc of a commit could not get entries. It changes
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
	// What stands in their way, as a directory that is not empty.
	if err := hostfiles.WithOverlays(func() error { return nil }, views...); err != nil {
		return fault.New(fault.Refused, "cannot change /etc: %w", err).
			WithHint("move what stands at the path out of the way, or ask for something else there")
	}
	return nil
}

// checkMerge is an error if libostree's merge would fail over an entry, or would leave it
// out, because of what a commit has at its path.
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

// checkArrived holds what a deployment has in /etc against the entries it was to get.
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
			ships = ships && expected.Kind != hostfiles.KindPassword // which is locked then
		}
		if there != ships || there && got.Entry != expected.Entry {
			return fmt.Errorf("cannot trust the new deployment: its %s is missing or differs", path)
		}
	}
	return nil
}
