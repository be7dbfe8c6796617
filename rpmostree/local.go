package rpmostree

import (
	"errors"
	"os"
	"path"
	"path/filepath"
	"strings"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/ostree"
)

// checkLocal returns an error if libostree's merge would fail, or write into the running system, because of what the
// booted /etc has and its image lacks. The merge never replaces a directory of the next image by something else, and
// reaches a changed entry by its path in the new /etc. Nothing on that path may be a file, or a link out of the new
// /etc. An absolute link does, because the merge runs in the booted system.
func (n nextEtc) checkLocal() error { return n.checkLocalIn("/etc") }

func (n nextEtc) checkLocalIn(dir string) error {
	files, err := n.repo.FileNames(n.commit, "usr"+dir)
	if err != nil {
		return err
	}
	names, err := n.repo.Names(n.commit, "usr"+dir) // directories last
	if err != nil {
		return err
	}
	for i, name := range names {
		at := path.Join(dir, name)
		if f, asked := n.asked[at]; asked && f.Kind != hostfiles.KindDirectory {
			continue // checkMerge knows
		}
		info, err := os.Lstat(filepath.Join(n.booted, at))
		if err != nil {
			continue // nothing is there, which hinders nothing of the next image
		}
		switch brings := i >= len(files); {
		case brings && info.IsDir():
			err = n.checkLocalIn(at)
		case brings:
			err = n.checkReplaced(at)
		case info.IsDir():
			err = n.checkReached(at)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// checkReplaced checks something that is no directory in the booted /etc, and is one in the next image.
func (n nextEtc) checkReplaced(at string) error {
	changed, err := n.changed(at)
	if err != nil || !changed {
		return err
	}
	return fault.New(fault.Refused, "cannot carry over %s: it was changed in the running /etc, and the new image has a directory there, which libostree does not replace", at).
		WithHint("move it out of the way: mv %s /root/", at)
}

// checkReached checks a directory of the booted /etc that is a file or a link in the next image.
func (n nextEtc) checkReached(at string) error {
	if changed, err := n.changed(at); err != nil || changed {
		return err // the directory replaces the next image's file or link
	}
	below, err := n.changedBelow(at)
	if err != nil || below == "" {
		return err
	}
	_, isLink, err := n.leadsInside(at)
	if err != nil || isLink {
		return err
	}
	return fault.New(fault.Refused, "cannot carry over %s: it was changed in the running /etc, and the new image has no directory %s that libostree could put it into", below, at).
		WithHint("move %s to where the new image has it", below)
}

// leadsInside reports whether the next image has a relative link at a path that leads to a directory of its /etc.
func (n nextEtc) leadsInside(at string) (string, bool, error) {
	link, _, err := n.repo.Look(n.commit, "usr"+at)
	if err != nil || link.Target == "" || path.IsAbs(link.Target) {
		return "", false, err
	}
	to, exists, err := n.repo.Resolve(n.commit, at)
	if _, unresolved := errors.AsType[*ostree.UnresolvedError](err); unresolved {
		return "", false, nil
	}
	return to.Path, exists && to.IsDir && strings.HasPrefix(to.Path, "usr/etc/"), err
}

// changed reports whether the merge sees a difference between the booted /etc and the booted image at a path, apart
// from what is in a directory.
func (n nextEtc) changed(at string) (bool, error) {
	have, there, err := hostfiles.Look(n.booted, at)
	if err != nil {
		return false, err
	}
	had, ships, err := n.shipped(at)
	return there != ships || have.Entry != had.Entry, err
}

// changedBelow returns the path of something in a directory that has changed, was added or was removed; "" if there is
// nothing.
func (n nextEtc) changedBelow(dir string) (string, error) {
	names := map[string]bool{}
	for _, root := range []string{n.booted, filepath.Join(n.booted, "usr")} {
		entries, err := os.ReadDir(filepath.Join(root, dir))
		if err != nil {
			return "", err
		}
		for _, e := range entries {
			names[e.Name()] = true
		}
	}
	for name := range names {
		at := path.Join(dir, name)
		if changed, err := n.changed(at); err != nil || changed {
			return at, err
		}
		if info, err := os.Lstat(filepath.Join(n.booted, at)); err == nil && info.IsDir() {
			if below, err := n.changedBelow(at); err != nil || below != "" {
				return below, err
			}
		}
	}
	return "", nil
}
