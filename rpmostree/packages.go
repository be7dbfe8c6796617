package rpmostree

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/host"
	"machine-pivot/internal/ostree"
	"machine-pivot/pivot"
)

// packages changes the packages of the staged deployment.
//
// rpm-ostree starts from the staged deployment, whatever program staged it, and replaces it by one
// with the packages and with the same base, origin and arguments. Each of these deployments is
// locked, so none can become the next boot before the commit. One call of its D-Bus interface could
// change image and packages together, but checks the names of packages against the old image.
type packages struct {
	engine     *RpmOstree
	request    pivot.Request
	have       pivot.SystemPackages // of the staged deployment, when last checked
	repository *pivot.Repository    // nil until fetched
	relock     bool                 // rpm-ostree loses the lock: see withoutFinalize
}

// cannotChange returns the error of an engine that would have to change packages without
// rpm-ostree.
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

// change changes the packages of the staged deployment to the requested ones.
func (p *packages) change(ctx context.Context) error {
	changes, err := p.missing(ctx)
	if err != nil || len(changes) == 0 {
		return err
	}
	tool, err := p.engine.queryTool(ctx, "rpm-ostree")
	if err != nil {
		return err
	}
	work := func() error {
		return p.withoutFinalize(ctx, tool, func() error { return p.makeAll(ctx, changes, tool) })
	}
	if install := namesOf(changes, pivot.PackageInstall); len(install) > 0 {
		err = p.withRepository(ctx, install, work)
	} else {
		err = work()
	}
	if err != nil {
		return fmt.Errorf("cannot change packages (%s): %w", changeList(changes), err)
	}
	return nil
}

// missing returns the changes that the staged deployment still needs. It locks the deployment
// again first, if rpm-ostree loses the lock.
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

// packagesOf returns the packages of a deployment.
func (e *RpmOstree) packagesOf(ctx context.Context, d ostree.Deployment, asked pivot.Packages) (pivot.SystemPackages, error) {
	return host.PackagesOf(ctx, e.Sysroot.Root(), e.Run, d, asked)
}

func namesOf(changes []pivot.PackageChange, action pivot.PackageAction) (names []string) {
	for _, c := range changes {
		if c.Action == action {
			names = append(names, c.Name)
		}
	}
	return names
}

// call is one of several calls of rpm-ostree. changes are those that are made when it is done.
type call struct {
	argv    []string
	changes []pivot.PackageChange
}

// calls returns the calls that make the changes. One is enough, unless packages of the image must
// be removed and others restored, which rpm-ostree cannot do in one call.
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

// offered returns the packages with the wish PackageOffered that the repository has and the
// staged deployment lacks.
func (p *packages) offered() []string {
	if p.repository == nil {
		return nil
	}
	return slices.DeleteFunc(p.request.Packages.Names(pivot.PackageOffered), func(name string) bool {
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

// makeAll makes all changes, one call after the other.
func (p *packages) makeAll(ctx context.Context, changes []pivot.PackageChange, t tool) error {
	for _, c := range p.calls(changes, t) {
		if err := p.make(ctx, c, t); err != nil {
			return err
		}
	}
	return nil
}

// make runs one call as a transaction.
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
