package host

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"

	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/machineconfig/enable"
	"machine-pivot/internal/ostree"
	"machine-pivot/internal/projection"
	"machine-pivot/pivot"
)

// Etc reads the entries and units that target names from the running system, and nothing else.
func (h *Host) Etc(target pivot.Target) (pivot.Etc, error) {
	booted, err := h.booted()
	if err != nil {
		return pivot.Etc{}, err
	}
	return h.readEtc(booted, target)
}

// readEtc reads the entries that target names from the running system.
func (h *Host) readEtc(booted ostree.Deployment, target pivot.Target) (pivot.Etc, error) {
	etc, outside, err := etcOf(h.Root, booted, target)
	if err != nil {
		return etc, err
	}
	there, err := projection.Observe(h.Root, outside)
	maps.Copy(etc.Entries, there.Entries)
	maps.Copy(etc.Image, there.Without)
	return etc, err
}

// nextEtc reads the entries that target names from a deployment that is not running.
func nextEtc(d ostree.Deployment, target pivot.Target) (pivot.Etc, error) {
	etc, outside, err := etcOf(d.Path, d, target)
	if err == nil {
		etc.Project(outside)
	}
	return etc, err
}

// etcOf reads the entries that target names from the /etc of d, which is the system below root, and the entries that it
// carries for paths outside /etc. It returns those paths, too.
func etcOf(root string, d ostree.Deployment, target pivot.Target) (etc pivot.Etc, outside []string, err error) {
	units, err := resolveUnits(enable.System{Etc: dirTree(root), Image: dirTree(d.Path)}, target)
	if err != nil {
		return etc, nil, err
	}
	below, outside := splitPaths(target, units)
	if etc, err = readPaths(root, d, below); err != nil {
		return etc, nil, err
	}
	etc.Units = units
	if etc.Carried, err = carriedBy(root, outside); err != nil {
		return etc, nil, err
	}
	etc.Users = hostfiles.AllOfUsers(root, target.Paths())
	etc.Accounts, err = hostfiles.ReadAccounts(in(root))
	return etc, outside, err
}

// readPaths reads the entries at paths from the system below root and from its deployment's
// image.
func readPaths(root string, d ostree.Deployment, paths []string) (etc pivot.Etc, err error) {
	if etc.Entries, err = hostfiles.ReadEntries(root, paths); err != nil {
		return etc, err
	}
	etc.Image, err = imageEntries(d, paths)
	return etc, err
}

// imageEntries returns the entries that the image of a deployment has for /etc. It omits
// passwords: accounts in an image are locked unless the target sets a password.
func imageEntries(d ostree.Deployment, paths []string) (map[string]hostfiles.Entry, error) {
	entries, err := hostfiles.ReadEntries(d.Path+"/usr", paths)
	maps.DeleteFunc(entries, func(_ string, e hostfiles.Entry) bool { return e.Kind == hostfiles.KindPassword })
	return entries, err
}

// splitPaths returns the paths that a target names, divided into those below /etc, including
// those of units, and others.
func splitPaths(target pivot.Target, units enable.Resolved) (below, outside []string) {
	for _, name := range target.Paths() {
		if projection.Outside(name) {
			outside = append(outside, name)
		} else {
			below = append(below, name)
		}
	}
	for _, e := range units.Entries {
		below = append(below, e.Path)
	}
	return below, outside
}

// carriedBy returns the entries that a system carries. Only root can read them; without root it
// returns none if no such path is requested.
func carriedBy(root string, asked []string) (projection.Set, error) {
	carried, err := projection.Read(root)
	if errors.Is(err, fs.ErrPermission) && len(asked) == 0 {
		return projection.Set{}, nil
	}
	return carried, err
}

// in returns a function that reads files below a directory.
func in(dir string) ostree.ReadFile {
	return func(name string) ([]byte, error) { return os.ReadFile(filepath.Join(dir, name)) }
}

// stagedEtc predicts the /etc of a staged deployment: libostree keeps entries of the running
// system that differ from its image, and takes all others from the new image.
func stagedEtc(root string, booted, next ostree.Deployment, carried projection.Set, target pivot.Target) (etc pivot.Etc, err error) {
	if etc.Units, err = resolveUnits(nextSystem(booted, dirTree(next.Path)), target); err != nil {
		return etc, err
	}
	below, outside := splitPaths(target, etc.Units)
	running, err := readPaths(root, booted, below)
	if err != nil {
		return etc, err
	}
	if etc.Image, err = imageEntries(next, below); err != nil {
		return etc, err
	}
	etc.Entries = maps.Clone(etc.Image)
	for _, path := range below {
		entry, runs := running.Entries[path]
		shipped, ships := running.Image[path]
		switch {
		case runs && !(ships && entry == shipped):
			etc.Entries[path] = entry
		case !runs && ships: // removed locally
			delete(etc.Entries, path)
		}
	}
	etc.Carried, etc.Users = carried, hostfiles.AllOfUsers(root, target.Paths())
	if etc.Accounts, err = NextAccounts(booted, in(next.Path)); err != nil {
		return etc, err
	}
	etc.Project(outside)
	return etc, nil
}

// NextAccounts returns the users and groups of a system that libostree makes from an image and
// the /etc of the booted deployment. image reads a file of the new image, with paths such as
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
