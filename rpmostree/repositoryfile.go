package rpmostree

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"machine-pivot/internal/hostfiles"
	"machine-pivot/pivot"
)

// keepingLayered calls work, in which rpm-ostree moves to another image and resolves the packages to
// be layered on it. The requested packages must be in the repository; others may be.
func (p *packages) keepingLayered(ctx context.Context, layered []string, work func() error) error {
	if len(layered) == 0 {
		return work()
	}
	asked := p.request.Packages.Names(pivot.PackagePresent)
	return p.withRepository(ctx, slices.DeleteFunc(asked, func(name string) bool { return !slices.Contains(layered, name) }), work)
}

// repositoryFile configures the package repository for rpm-ostree, which only uses repositories in
// the booted system's /etc. It exists only while a call needs it, and is removed before the
// commit, which merges /etc. Package files in its place would be pinned to their versions, and a
// cluster's daemon could not replace them.
const repositoryFile = repositoriesIn + "/pivot-extensions.repo"

// getRepository fetches the repository with the named packages, if there is one and it is not there yet.
func (p *packages) getRepository(ctx context.Context, names []string) error {
	if p.request.Repository == nil || p.repository != nil {
		return nil
	}
	r, err := p.request.Repository(ctx, names)
	if err == nil {
		p.repository = &r
	}
	return err
}

// withRepository calls work while rpm-ostree can use the repository with the named packages, if
// there is one.
func (p *packages) withRepository(ctx context.Context, names []string, work func() error) (err error) {
	if err := p.getRepository(ctx, names); err != nil {
		return err
	}
	if p.repository == nil || p.repository.Dir == "" {
		return work()
	}
	if err := p.engine.configure(p.repository.Dir); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.engine.unconfigure()) }()
	return work()
}

// configure writes repositoryFile. It disables GPG checks of the packages, since their digests
// are part of the image, which the machine's signature policy has accepted.
func (e *RpmOstree) configure(dir string) error {
	text := "[pivot-extensions]\nname=Packages of the image of extensions\nbaseurl=file://" + dir +
		"\nenabled=1\ngpgcheck=0\nmetadata_expire=1m\nskip_if_unavailable=False\n"
	file := filepath.Join(e.Sysroot.Root(), repositoryFile)
	err := hostfiles.MakeDir(hostfiles.OS{}, filepath.Dir(file), 0o755)
	if err == nil {
		err = os.WriteFile(file, []byte(text), 0o644)
	}
	if err != nil {
		return fmt.Errorf("cannot let rpm-ostree know the repository of packages: %w", err)
	}
	return nil
}

// unconfigure removes repositoryFile.
func (e *RpmOstree) unconfigure() error {
	if err := os.Remove(filepath.Join(e.Sysroot.Root(), repositoryFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("cannot remove what let rpm-ostree know the repository of packages: %w", err)
	}
	return nil
}
