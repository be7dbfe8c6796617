package rpmostree

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/host"
	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/ostree"
	"machine-pivot/pivot"
)

// packages are the changes of packages on top of what is staged already.
//
// rpm-ostree starts from the deployment that is staged, whoever staged it, and replaces it
// by one with the packages, whose base, origin and arguments are the same. Each is locked,
// so nothing in between can become the next boot.
type packages struct {
	engine     *RpmOstree
	request    pivot.Request
	have       pivot.SystemPackages // of what is staged, when it was looked at last
	repository *pivot.Repository    // nil: not fetched yet
	relock     bool                 // rpm-ostree loses the lock: see heldBack
}

// cannotChange refuses to change packages without rpm-ostree.
func cannotChange(changes []pivot.PackageChange) error {
	return fault.New(fault.Refused, "cannot change packages by ostree alone (%s): only rpm-ostree can", changeList(changes)).
		WithHint("use a host with rpm-ostree and --engine=auto, or build the packages into the image and ask for none")
}

func changeList(changes []pivot.PackageChange) string {
	texts := make([]string, len(changes))
	for i, c := range changes {
		texts[i] = string(c.Action) + " " + c.Name
	}
	return strings.Join(texts, ", ")
}

// change makes the packages of what is staged those that are asked for.
func (p *packages) change(ctx context.Context) error {
	changes, err := p.missing(ctx)
	if err != nil || len(changes) == 0 {
		return err
	}
	tool, err := p.engine.ask(ctx, "rpm-ostree")
	if err != nil {
		return err
	}
	work := func() error { return p.heldBack(ctx, tool, func() error { return p.makeAll(ctx, changes, tool) }) }
	if install := namesOf(changes, pivot.PackageInstall); len(install) > 0 {
		err = p.configured(ctx, install, work)
	} else {
		err = work()
	}
	if err != nil {
		return fmt.Errorf("cannot change packages (%s): %w", changeList(changes), err)
	}
	return nil
}

// missing are the changes that what is staged still needs.
func (p *packages) missing(ctx context.Context) ([]pivot.PackageChange, error) {
	if p.request.Packages.IsZero() {
		return nil, nil
	}
	if p.relock {
		if err := p.engine.touchLock(); err != nil {
			return nil, err
		}
	}
	staged, err := p.engine.checkStaged(p.request)
	if err != nil {
		return nil, err
	}
	d, err := p.engine.Sysroot.Deployment(staged.Target)
	if err != nil {
		return nil, err
	}
	p.have, err = p.engine.packagesOf(ctx, d, p.request.Packages)
	return p.have.Changes(p.request.Packages), err
}

// packagesOf are what a deployment has of the packages that are asked about.
func (e *RpmOstree) packagesOf(ctx context.Context, d ostree.Deployment, asked pivot.Packages) (pivot.SystemPackages, error) {
	have := pivot.SystemPackages{Layered: d.Origin.LayeredPackages(), Removed: d.Origin.RemovedPackages()}
	if len(asked.Asked()) == 0 {
		return have, nil
	}
	var err error
	have.Installed, err = host.InstalledPackages(ctx, host.WithTmp(e.Sysroot.Root(), e.Run), d.Checksum.String())
	return have, err
}

// checkNoPackages is an error if the packages of what is staged are not those that are
// asked for, as far as that is known without rpm-ostree.
func (e *Ostree) checkNoPackages(r pivot.Request) error {
	staged, err := e.Sysroot.Staged()
	if err != nil || staged == nil {
		return err
	}
	d, err := e.Sysroot.Deployment(staged.Target)
	if err != nil {
		return err
	}
	have := pivot.SystemPackages{Layered: d.Origin.LayeredPackages(), Removed: d.Origin.RemovedPackages()}
	if changes := have.Changes(r.Packages); len(changes) > 0 {
		return cannotChange(changes)
	}
	return nil
}

// Commit implements pivot.Engine, and reads back the packages too.
func (e *RpmOstree) Commit(ctx context.Context, r pivot.Request) error {
	if _, err := e.checkStaged(r); err == nil { // if not, Ostree.Commit says so
		p := packages{engine: e, request: r}
		if changes, err := p.missing(ctx); err != nil {
			return err
		} else if len(changes) > 0 {
			return fault.New(fault.Unavailable, "somebody else changed what was staged: it still needs %s", changeList(changes))
		}
	}
	if err := e.Ostree.Commit(ctx, r); err != nil || r.Packages.IsZero() {
		return err
	}
	all, err := e.Sysroot.Deployments()
	if err != nil {
		return err
	}
	have, err := e.packagesOf(ctx, all[0], r.Packages)
	if err != nil {
		return err
	}
	if changes, lacks := have.Changes(r.Packages), have.Lacks(r.Packages); len(changes)+len(lacks) > 0 {
		return fault.New(fault.Internal, "cannot trust the new deployment: it lacks the packages %q, and needs %q", lacks, changeList(changes))
	}
	return checkKernel(all[0])
}

// checkKernel is an error unless a deployment's boot entry starts the one kernel that it has.
func checkKernel(d ostree.Deployment) error {
	kernels, err := filepath.Glob(filepath.Join(d.Path, "usr/lib/modules/*/vmlinuz"))
	if err != nil || len(kernels) != 1 {
		return fault.New(fault.Internal, "cannot trust the new deployment: it has %d kernels, not one (%v)", len(kernels), err)
	}
	if release := filepath.Base(filepath.Dir(kernels[0])); !strings.HasSuffix(d.Entry.Linux, "-"+release) {
		return fault.New(fault.Internal, "cannot trust the new boot entry: it starts %s, and the deployment has the kernel %s", d.Entry.Linux, release)
	}
	return nil
}

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

func namesOf(changes []pivot.PackageChange, action pivot.PackageAction) (names []string) {
	for _, c := range changes {
		if c.Action == action {
			names = append(names, c.Name)
		}
	}
	return names
}

// call is one call of rpm-ostree in a chain, with those of the changes that it makes.
type call struct {
	argv    []string
	changes []pivot.PackageChange
}

// calls are those for changes: one, unless packages of the image are to be left out and
// others to be there again, for which rpm-ostree has no common call.
func (p *packages) calls(changes []pivot.PackageChange, t tool) []call {
	remove, restore := namesOf(changes, pivot.PackageRemove), namesOf(changes, pivot.PackageRestore)
	install, uninstall := namesOf(changes, pivot.PackageInstall), namesOf(changes, pivot.PackageUninstall)
	if len(install) > 0 {
		install = append(install, p.offered()...)
	}
	command := func(verb []string, more ...[]string) []string {
		return slices.Concat([]string{"rpm-ostree"}, verb, t.lockOptions(), slices.Concat(more...))
	}
	others := append(prefixed("--install=", install), prefixed("--uninstall=", uninstall)...)
	switch {
	case len(restore) > 0 && len(remove) > 0:
		first := slices.DeleteFunc(slices.Clone(changes), func(c pivot.PackageChange) bool { return c.Action != pivot.PackageRestore })
		return []call{
			{command([]string{"override", "reset"}, restore), first},
			{command([]string{"override", "remove"}, others, remove), changes},
		}
	case len(remove) > 0:
		return []call{{command([]string{"override", "remove"}, others, remove), changes}}
	case len(restore) > 0:
		return []call{{command([]string{"override", "reset"}, others, restore), changes}}
	case len(install) > 0:
		return []call{{command([]string{"install"}, prefixed("--uninstall=", uninstall), install), changes}}
	}
	return []call{{command([]string{"uninstall"}, uninstall), changes}}
}

// offered are those packages, wanted only if the repository has them, that are not there.
func (p *packages) offered() []string {
	if p.repository == nil {
		return nil
	}
	return slices.DeleteFunc(p.request.Packages.Offered(), func(name string) bool {
		return !slices.Contains(p.repository.Names, name) || slices.Contains(p.have.Layered, name) || slices.Contains(p.have.Installed, name)
	})
}

func prefixed(option string, names []string) []string {
	options := make([]string, len(names))
	for i, name := range names {
		options[i] = option + name
	}
	return options
}

// makeAll has rpm-ostree make all changes, one call after the other.
func (p *packages) makeAll(ctx context.Context, changes []pivot.PackageChange, t tool) error {
	for _, c := range p.calls(changes, t) {
		if err := p.make(ctx, c, t); err != nil {
			return err
		}
	}
	return nil
}

// make has rpm-ostree make changes.
func (p *packages) make(ctx context.Context, c call, t tool) error {
	return p.engine.transact(ctx, transaction{
		argv:   c.argv,
		before: func(context.Context) error { return p.engine.lockByFile(t) },
		complete: func(ctx context.Context) error {
			missing, err := p.missing(ctx)
			missing = slices.DeleteFunc(missing, func(m pivot.PackageChange) bool { return !slices.Contains(c.changes, m) })
			if err == nil && len(missing) > 0 {
				err = fault.New(fault.Internal, "rpm-ostree reported success, but what it staged still needs: %s", changeList(missing))
			}
			return err
		},
	})
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
