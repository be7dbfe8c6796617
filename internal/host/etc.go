package host

import (
	"os"
	"path/filepath"
	"strings"

	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/machineconfig/enable"
	"machine-pivot/internal/ostree"
	"machine-pivot/pivot"
)

// readEtc reads what the system below root, which is that of a deployment, has in /etc of
// what a target names.
func readEtc(root string, d ostree.Deployment, target pivot.Target) (etc pivot.Etc, err error) {
	if etc.Units, err = resolveUnits(enable.System{Etc: dirTree(root), Image: dirTree(d.Path)}, target); err != nil {
		return etc, err
	}
	units := etc.Units
	if etc, err = readPaths(root, d, pathsOf(target, etc)); err != nil {
		return etc, err
	}
	etc.Units = units
	etc.Accounts, err = hostfiles.ReadAccounts(in(root))
	return etc, err
}

// readPaths reads what the system below root and its deployment's image have at paths.
func readPaths(root string, d ostree.Deployment, paths []string) (etc pivot.Etc, err error) {
	if etc.Entries, err = hostfiles.ReadEntries(root, paths); err != nil {
		return etc, err
	}
	etc.Image, err = hostfiles.ReadEntries(d.Path+"/usr", paths)
	return etc, err
}

// pathsOf are the paths below /etc that a target is about in a system.
func pathsOf(target pivot.Target, etc pivot.Etc) []string {
	paths := target.Paths()
	for _, e := range etc.Units.Entries {
		paths = append(paths, e.Path)
	}
	return paths
}

// in reads the files below a directory.
func in(dir string) ostree.ReadFile {
	return func(name string) ([]byte, error) { return os.ReadFile(filepath.Join(dir, name)) }
}

// stagedEtc is what a staged deployment will have in /etc: libostree takes what the
// running system has where that differs from its image's, and else what the new image has.
func stagedEtc(root string, booted, next ostree.Deployment, target pivot.Target) (etc pivot.Etc, err error) {
	if etc.Units, err = resolveUnits(nextSystem(booted, dirTree(next.Path)), target); err != nil {
		return etc, err
	}
	paths := pathsOf(target, etc)
	running, err := readPaths(root, booted, paths)
	if err != nil {
		return etc, err
	}
	if etc.Entries, err = hostfiles.ReadEntries(next.Path+"/usr", paths); err != nil {
		return etc, err
	}
	if etc.Image, err = hostfiles.ReadEntries(next.Path+"/usr", paths); err != nil {
		return etc, err
	}
	for _, path := range paths {
		entry, runs := running.Entries[path]
		shipped, ships := running.Image[path]
		switch {
		case runs && !(ships && entry == shipped):
			etc.Entries[path] = entry
		case !runs && ships: // removed by hand
			delete(etc.Entries, path)
		}
	}
	etc.Accounts, err = NextAccounts(booted, in(next.Path))
	return etc, err
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
