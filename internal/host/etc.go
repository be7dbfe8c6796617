package host

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"

	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/ostree"
	"machine-pivot/internal/projection"
	"machine-pivot/internal/varentries"
	"machine-pivot/pivot"
)

// readEtc reads what the system that runs has.
func (h *Host) readEtc(booted ostree.Deployment, paths []string) (etc pivot.Etc, err error) {
	below, outside := apart(paths)
	if etc, err = etcOf(h.Root, booted, below); err != nil {
		return etc, err
	}
	if etc.Carried, err = carriedBy(h.Root, outside); err != nil {
		return etc, err
	}
	there, err := projection.Observe(h.Root, outside)
	maps.Copy(etc.Entries, there.Entries)
	maps.Copy(etc.Image, there.Without)
	return etc, err
}

// nextEtc reads what a deployment will have that does not run.
func nextEtc(d ostree.Deployment, paths []string) (etc pivot.Etc, err error) {
	below, outside := apart(paths)
	if etc, err = etcOf(d.Path, d, below); err != nil {
		return etc, err
	}
	if etc.Carried, err = carriedBy(d.Path, outside); err != nil {
		return etc, err
	}
	etc.Project(outside)
	return etc, nil
}

// etcOf reads what the system below root, which is that of a deployment, has in /etc.
func etcOf(root string, d ostree.Deployment, paths []string) (etc pivot.Etc, err error) {
	if etc.Entries, err = hostfiles.ReadEntries(root, paths); err != nil {
		return etc, err
	}
	if etc.Image, err = imageEntries(d, paths); err != nil {
		return etc, err
	}
	etc.Accounts, err = hostfiles.ReadAccounts(in(root))
	return etc, err
}

// imageEntries are what the image of a deployment has for /etc. It has no passwords: one
// that nobody asks for is locked.
func imageEntries(d ostree.Deployment, paths []string) (map[string]hostfiles.Entry, error) {
	entries, err := hostfiles.ReadEntries(d.Path+"/usr", paths)
	maps.DeleteFunc(entries, func(_ string, e hostfiles.Entry) bool { return e.Kind == hostfiles.KindPassword })
	return entries, err
}

// apart are the paths below /etc, and the others.
func apart(paths []string) (below, outside []string) {
	for _, name := range paths {
		if varentries.Outside(name) {
			outside = append(outside, name)
		} else {
			below = append(below, name)
		}
	}
	return below, outside
}

// carriedBy is what a system carries. Only root can read that, and who is not can ask about
// the rest.
func carriedBy(root string, asked []string) (varentries.Set, error) {
	carried, err := varentries.Read(root)
	if errors.Is(err, fs.ErrPermission) && len(asked) == 0 {
		return varentries.Set{}, nil
	}
	return carried, err
}

// in reads the files below a directory.
func in(dir string) ostree.ReadFile {
	return func(name string) ([]byte, error) { return os.ReadFile(filepath.Join(dir, name)) }
}

// stagedEtc is what a staged deployment will have in /etc: libostree takes what the
// running system has where that differs from its image's, and else what the new image has.
func stagedEtc(booted, next ostree.Deployment, running pivot.Etc, paths []string) (etc pivot.Etc, err error) {
	below, outside := apart(paths)
	if etc.Entries, err = imageEntries(next, below); err != nil {
		return etc, err
	}
	if etc.Image, err = imageEntries(next, below); err != nil {
		return etc, err
	}
	for _, path := range below {
		entry, runs := running.Entries[path]
		shipped, ships := running.Image[path]
		switch {
		case runs && !(ships && entry == shipped):
			etc.Entries[path] = entry
		case !runs && ships: // removed by hand
			delete(etc.Entries, path)
		}
	}
	etc.Carried = running.Carried
	if etc.Accounts, err = NextAccounts(booted, in(next.Path)); err != nil {
		return etc, err
	}
	etc.Project(outside)
	return etc, nil
}

// NextAccounts are the users and groups of a system that libostree makes with the /etc
// of the booted deployment; image reads what the new system's image has, by paths as
// "usr/etc/passwd".
func NextAccounts(booted ostree.Deployment, image ostree.ReadFile) (hostfiles.Accounts, error) {
	before := in(filepath.Join(booted.Path, "usr"))
	next := func(name string) ([]byte, error) { return image("usr/" + name) }
	return hostfiles.ReadAccounts(func(name string) ([]byte, error) {
		if !strings.HasPrefix(name, "etc/") {
			return image(name)
		}
		return ostree.MergeFile(name, in(booted.Path), before, next)
	})
}
