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
	"machine-pivot/internal/ostree"
	"machine-pivot/pivot"
)

// keeping does work in which rpm-ostree looks anew, for another image, for the packages that
// the booted deployment has on top of its own. Of those that are asked for it is known that
// they come from the repository, others may.
func (p *packages) keeping(ctx context.Context, booted ostree.Deployment, work func() error) error {
	layered := booted.Origin.LayeredPackages()
	if len(layered) == 0 {
		return work()
	}
	var asked []string
	for _, w := range p.request.Packages.Wishes {
		if w.Wish == pivot.PackagePresent && slices.Contains(layered, w.Name) {
			asked = append(asked, w.Name)
		}
	}
	return p.configured(ctx, asked, work)
}

// repositoryFile makes the repository of packages known to rpm-ostree, which knows only
// those of the booted system's /etc. It is there as long as a call needs it, and gone
// before the commit, which carries /etc over.
const repositoryFile = "/etc/yum.repos.d/pivot-extensions.repo"

// configured does work while rpm-ostree knows the repository in which packages of these
// names are, if there is one.
func (p *packages) configured(ctx context.Context, names []string, work func() error) (err error) {
	if p.request.Repository == nil {
		return work()
	}
	if p.repository == nil {
		r, err := p.request.Repository(ctx, names)
		if err != nil {
			return err
		}
		p.repository = &r
	}
	if p.repository.Dir == "" {
		return work()
	}
	if err := p.engine.configure(p.repository.Dir); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.engine.unconfigure()) }()
	return work()
}

// configure writes the repository's file. Its packages are not signed each: their digests
// are in the image, which the machine's signature policy has accepted.
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

// unconfigure removes the repository's file.
func (e *RpmOstree) unconfigure() error {
	if err := os.Remove(filepath.Join(e.Sysroot.Root(), repositoryFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("cannot remove what let rpm-ostree know the repository of packages: %w", err)
	}
	return nil
}
