package rpmostree

import (
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/ostree"
	"machine-pivot/pivot"
)

// nextEtc is the /etc that libostree's merge makes of the booted one and of a commit, with entries added.
type nextEtc struct {
	booted string // root directory of the booted deployment
	repo   *ostree.Repo
	commit ostree.Checksum
	asked  map[string]hostfiles.File // the entries, by path
}

func (e *Ostree) nextEtc(booted ostree.Deployment, commit ostree.Checksum, entries []hostfiles.File) (nextEtc, error) {
	repo, err := ostree.OpenRepo(e.Sysroot.RepoPath())
	asked := map[string]hostfiles.File{}
	for _, f := range entries {
		asked[f.Path] = f
	}
	return nextEtc{booted.Path, repo, commit, asked}, err
}

// forDeployment returns the request for a deployment of commit, with the links of its units. Each entry has its path in
// that system, which no link redirects.
func (e *Ostree) forDeployment(r pivot.Spec, booted ostree.Deployment, commit ostree.Checksum) (pivot.Spec, error) {
	r, err := r.ForCommit(commit.String())
	if err != nil {
		return r, err
	}
	next, err := e.nextEtc(booted, commit, r.Entries)
	if err != nil {
		return r, err
	}
	r.Entries, err = next.place(r.Entries)
	return r, err
}

// place returns entries with their paths in the next /etc. The directories above them may be links of the next image,
// of the booted /etc, or among the entries. What is asked for wins at its own path, also over a link. On the way to it
// the links that the next system has are followed, as by whoever opens the path there. So each directory on the way is
// compared with the next image as the entry itself is.
func (n nextEtc) place(entries []hostfiles.File) (placed []hostfiles.File, err error) {
	at := map[string]hostfiles.File{}
	for _, f := range entries {
		to, exists, err := n.pathOf(f)
		if err != nil {
			return nil, err
		}
		if !exists {
			continue
		}
		if other, twice := at[to]; twice && other.Entry != f.Entry {
			return nil, fault.New(fault.Refused, "cannot put both %s and %s: they are %s in the new system", other.Path, f.Path, to).
				WithHint("ask for %s or for %s, or build the image without the link between them", other.Path, f.Path)
		}
		at[to] = f
		f.Path = to
		placed = append(placed, f)
	}
	return placed, nil
}

// pathOf returns the path of an entry in the next /etc. exists is false for an entry to be removed where the next
// system has nothing of its own.
func (n nextEtc) pathOf(f hostfiles.File) (to string, exists bool, err error) {
	if f.OnDisk() != f.Path {
		return f.Path, true, nil
	}
	dir, there, err := ostree.Resolve(path.Dir(f.Path), n.look)
	if err == nil && there && !dir.IsDir {
		err = &ostree.UnresolvedError{Reason: fmt.Sprintf("it leads through /%s, which is a file", dir.Path)}
	}
	_, unresolved := errors.AsType[*ostree.UnresolvedError](err)
	rel, below := strings.CutPrefix(dir.Path+"/", "usr/etc/")
	switch {
	case err != nil && !unresolved:
		return "", false, err
	case err == nil && below:
		return path.Join("/etc", rel, path.Base(f.Path)), true, nil
	case f.Kind == hostfiles.KindDefault:
		return "", false, nil
	case unresolved:
		return "", false, fault.New(fault.Refused, "cannot put %s: the new system could not open it: %w", f.Path, err).WithHint(inTheWay)
	}
	return "", false, fault.New(fault.Refused, "cannot put %s: it is /%s in the new system, outside of /etc", f.Path, path.Join(dir.Path, path.Base(f.Path))).WithHint(inTheWay)
}

const inTheWay = "leave the entry out, or build the image without what is on the way to it"

// look finds what the next system has at a path of its commit: for usr/etc that is what libostree's merge makes.
func (n nextEtc) look(name string) (ostree.Found, bool, error) {
	rel, below := strings.CutPrefix(name, "usr/etc/")
	if !below {
		return n.repo.Look(n.commit, name)
	}
	at := "/etc/" + rel
	if f, asked := n.asked[at]; asked && f.Kind != hostfiles.KindDefault {
		return found(f), f.Kind != hostfiles.KindAbsent, nil
	}
	have, there, err := hostfiles.Look(n.booted, at)
	if err != nil {
		return ostree.Found{}, false, err
	}
	shipped, ships, err := hostfiles.Look(filepath.Join(n.booted, "usr"), at)
	if err != nil {
		return ostree.Found{}, false, err
	}
	if _, asked := n.asked[at]; !asked && (there != ships || have.Entry != shipped.Entry) {
		return found(have), there, nil // the merge keeps what differs from the booted image
	}
	return n.repo.Look(n.commit, name)
}

// found returns an entry as what is found at its path.
func found(f hostfiles.File) ostree.Found {
	return ostree.Found{IsDir: f.Kind == hostfiles.KindDirectory, Target: f.Target, File: f.Content}
}

// above returns the directories above a path below /etc, top-down, without /etc.
func above(name string) (dirs []string) {
	for dir := path.Dir(name); dir != "/etc" && dir != "/"; dir = path.Dir(dir) {
		dirs = append(dirs, dir)
	}
	slices.Reverse(dirs)
	return dirs
}

// directory returns the directory that the commit has at a path below /etc, as an entry.
func (n nextEtc) directory(at string) (hostfiles.File, bool, error) {
	info, found, err := n.repo.DirInfo(n.commit, "usr"+at)
	if err != nil {
		return hostfiles.File{}, false, fmt.Errorf("cannot look at %s of the new image: %w", at, err)
	}
	dir := hostfiles.NewDirectory(at, hostfiles.ModeOf(info.Mode))
	dir.UID, dir.GID = int(info.UID), int(info.GID)
	return dir, found, nil
}
