package rpmostree

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/host"
	"machine-pivot/internal/ostree"
	"machine-pivot/pivot"
)

// packages makes deployments with the requested packages.
//
// rpm-ostree starts from the staged deployment, whatever program staged it, and replaces it by one
// with the packages and with the same base, origin and arguments. Each of these deployments is
// locked, so none can become the next boot before the commit.
//
// Each deployment with something layered is assembled, and with another kernel that takes minutes.
// So what one call of rpm-ostree's command line cannot change, its daemon is asked to change at
// once.
type packages struct {
	engine     *RpmOstree
	request    pivot.Spec
	have       pivot.SystemPackages // of the deployment that an update starts from
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
		return p.withoutFinalize(ctx, tool, func() error { return p.make(ctx, update{changes: changes, offered: p.offered()}, tool) })
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

// fetch gets the repository with what a deployment for the request will need to install, before anything is staged.
func (p *packages) fetch(ctx context.Context, booted ostree.Deployment) error {
	changes, err := p.expected(ctx, booted)
	if errors.Is(err, host.ErrNotInstalled) || err == nil && len(changes) == 0 {
		return nil
	}
	install := namesOf(changes, pivot.PackageInstall)
	if err != nil || len(install) == 0 {
		return err
	}
	if err := p.getRepository(ctx, install); err != nil {
		return fmt.Errorf("cannot change packages (%s): %w", changeList(changes), err)
	}
	return nil
}

// missing returns the changes that the staged deployment still needs.
func (p *packages) missing(ctx context.Context) ([]pivot.PackageChange, error) {
	if p.request.Packages.IsZero() {
		return nil, nil
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

// offered returns the packages with the wish PackageOffered that the repository has and the
// deployment lacks.
func (p *packages) offered() []string {
	if p.repository == nil {
		return nil
	}
	return slices.DeleteFunc(p.request.Packages.Names(pivot.PackageOffered), func(name string) bool {
		return !slices.Contains(p.repository.Names, name) || slices.Contains(p.have.Layered, name) || slices.Contains(p.have.Installed, name)
	})
}
