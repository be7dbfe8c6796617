package host

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/machineconfig/enable"
	"machine-pivot/internal/ostree"
	"machine-pivot/pivot"
)

// NextUnits resolves the units of a target for the system that libostree makes from a commit in
// the repository and the /etc of the booted deployment.
func NextUnits(booted ostree.Deployment, repo *ostree.Repo, commit ostree.Checksum, target pivot.Target) (enable.Resolved, error) {
	return resolveUnits(nextSystem(booted, commitTree{repo, commit}), target)
}

// resolveUnits resolves the units of a target for a system. It reads nothing if the target has
// no units.
func resolveUnits(system enable.System, target pivot.Target) (enable.Resolved, error) {
	if target.Units.IsZero() {
		return enable.Resolved{}, nil
	}
	return enable.Resolve(system, target.Units, target.Entries)
}

// nextSystem returns the system that libostree makes from an image and the /etc of the booted
// deployment.
func nextSystem(booted ostree.Deployment, image enable.Tree) enable.System {
	return enable.System{Etc: mergedTree{now: dirTree(booted.Path), next: image}, Image: image}
}

// Shipped returns what an image has for a path below /etc: the image of a commit in the repository,
// or of the running system if commit is "".
func (h *Host) Shipped(commit, path string) (hostfiles.File, bool, error) {
	if commit == "" {
		return hostfiles.Read(h.Path("/usr"), path)
	}
	c, err := ostree.ParseChecksum(commit)
	if err != nil {
		return hostfiles.File{}, false, err
	}
	repo, err := h.ReadRepo()
	if err != nil {
		return hostfiles.File{}, false, err
	}
	return commitTree{repo, c}.Look("/usr" + path)
}

// dirTree is a directory of the host.
type dirTree string

var _ enable.Tree = dirTree("")

func (d dirTree) Look(path string) (hostfiles.File, bool, error) {
	return hostfiles.Read(string(d), path)
}

func (d dirTree) Names(dir string) (names []string, err error) {
	all, err := os.ReadDir(filepath.Join(string(d), dir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, e := range all {
		names = append(names, e.Name())
	}
	return names, err
}

// commitTree is a commit in the repository.
type commitTree struct {
	repo   *ostree.Repo
	commit ostree.Checksum
}

var _ enable.Tree = commitTree{}

func (t commitTree) Look(path string) (hostfiles.File, bool, error) {
	found, there, err := t.repo.Look(t.commit, path[1:])
	switch {
	case err != nil || !there:
		return hostfiles.File{}, false, err
	case found.IsDir:
		return hostfiles.NewDirectory(path, 0), true, nil
	case found.Target != "":
		return hostfiles.NewLink(path, found.Target), true, nil
	}
	return hostfiles.NewFile(path, 0, found.File), true, nil
}

func (t commitTree) Names(dir string) ([]string, error) { return t.repo.Names(t.commit, dir[1:]) }

// mergedTree is the /etc that libostree makes: entries of the running system that differ from
// its image, and otherwise those of the next image.
type mergedTree struct {
	now  dirTree // the running deployment
	next enable.Tree
}

var _ enable.Tree = mergedTree{}

func (t mergedTree) Look(path string) (hostfiles.File, bool, error) {
	have, found, err := t.now.Look(path)
	if err != nil {
		return have, found, err
	}
	shipped, ships, err := hostfiles.Read(string(t.now)+"/usr", path)
	if err != nil || found != ships || have.Entry != shipped.Entry {
		return have, found, err
	}
	return t.next.Look("/usr" + path)
}

func (t mergedTree) Names(dir string) ([]string, error) {
	names, err := t.now.Names(dir)
	if err != nil {
		return nil, err
	}
	more, err := t.next.Names("/usr" + dir)
	return append(names, more...), err
}
