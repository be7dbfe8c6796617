package rpmostree

import (
	"context"
	"slices"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/host"
	"machine-pivot/pivot"
)

// update is what rpm-ostree is to change in the next deployment: the image, packages on top, or both.
type update struct {
	image   *rebase               // nil if the image stays
	changes []pivot.PackageChange // of packages
	offered []string              // installed along with the others
}

// install returns the names of all packages to be installed.
func (u update) install() []string {
	names := namesOf(u.changes, pivot.PackageInstall)
	if len(names) > 0 {
		names = append(names, u.offered...)
	}
	return names
}

// only returns the part of the update that changes packages in one way.
func (u update) only(action pivot.PackageAction) update {
	return update{changes: slices.DeleteFunc(slices.Clone(u.changes), func(c pivot.PackageChange) bool { return c.Action != action })}
}

// call is one call of rpm-ostree's command line, and what is done after it.
type call struct {
	argv []string
	update
}

// calls returns the calls of rpm-ostree's command line that change the packages: one, unless some of
// the image's are removed and others restored.
func (u update) calls(t tool) []call {
	remove, restore := namesOf(u.changes, pivot.PackageRemove), namesOf(u.changes, pivot.PackageRestore)
	install, uninstall := u.install(), namesOf(u.changes, pivot.PackageUninstall)
	command := func(verb []string, more ...[]string) []string {
		return slices.Concat([]string{"rpm-ostree"}, verb, t.lockOptions(), slices.Concat(more...))
	}
	others := append(prefixed("--install=", install), prefixed("--uninstall=", uninstall)...)
	switch {
	case len(restore) > 0 && len(remove) > 0:
		return []call{
			{command([]string{"override", "reset"}, restore), u.only(pivot.PackageRestore)},
			{command([]string{"override", "remove"}, others, remove), u},
		}
	case len(remove) > 0:
		return []call{{command([]string{"override", "remove"}, others, remove), u}}
	case len(restore) > 0:
		return []call{{command([]string{"override", "reset"}, others, restore), u}}
	case len(install) > 0:
		return []call{{command([]string{"install"}, prefixed("--uninstall=", uninstall), install), u}}
	}
	return []call{{command([]string{"uninstall"}, uninstall), u}}
}

func prefixed(option string, names []string) []string {
	options := make([]string, len(names))
	for i, name := range names {
		options[i] = option + name
	}
	return options
}

// make changes packages on top of the staged deployment, with the fewest deployments.
func (p *packages) make(ctx context.Context, u update, t tool) error {
	calls := u.calls(t)
	if len(calls) > 1 {
		if done, err := p.makeAtOnce(ctx, u, t); done || err != nil {
			return err
		}
	}
	for _, c := range calls {
		if err := p.makeBy(ctx, c, t); err != nil {
			return err
		}
	}
	return nil
}

// makeBy makes an update by one call of rpm-ostree's command line.
func (p *packages) makeBy(ctx context.Context, c call, t tool) error {
	return p.transact(ctx, c.update, t, func(ctx context.Context) error {
		_, err := host.WithTmp(p.engine.Sysroot.Root(), p.engine.Run)(ctx, c.argv...)
		return err
	})
}

// transact lets run make an update as one transaction, and checks what that has staged.
func (p *packages) transact(ctx context.Context, u update, t tool, run func(context.Context) error) error {
	return p.engine.transact(ctx, transaction{
		run: run,
		before: func(ctx context.Context) error {
			if u.image != nil {
				if err := u.image.before(ctx); err != nil {
					return err
				}
			}
			return p.engine.lockByFile(t)
		},
		complete: func(ctx context.Context) error { return p.complete(ctx, u) },
	})
}

// complete restores what rpm-ostree leaves out, and checks that the staged deployment is the updated
// one. First it holds the deployment back, which rpm-ostree has replaced, and locks it again, if rpm-ostree loses the lock.
func (p *packages) complete(ctx context.Context, u update) error {
	if err := p.engine.hold(); err != nil {
		return err
	}
	if p.relock {
		if err := p.engine.touchLock(); err != nil {
			return err
		}
	}
	if u.image != nil {
		if err := u.image.complete(); err != nil {
			return err
		}
	}
	missing, err := p.missing(ctx)
	missing = slices.DeleteFunc(missing, func(m pivot.PackageChange) bool { return !slices.Contains(u.changes, m) })
	if err == nil && len(missing) > 0 {
		err = fault.New(fault.Internal, "rpm-ostree reported success, but what it staged still needs: %s", changeList(missing))
	}
	return err
}
