package rpmostree

import (
	"slices"

	"machine-pivot/internal/ostree"
)

// update is what one transaction changes: the arguments of UpdateDeployment. The command line
// requests the same of the daemon.
type update struct {
	refspec                           string // "": the base stays
	url, description                  string // the custom origin
	install, uninstall, remove, reset []string
	cached                            bool // uses the cache of packages only
}

// updateByClient is an update of packages by the command line, which then lists the changes. Update
// drivers do not matter to it. It uses the cache only, unless it installs something.
func (c *call) updateByClient(what update) (int, error) {
	what.cached = len(what.install) == 0
	if err := c.update(what); err != nil {
		return exitFailed, err
	}
	return exitDone, c.printChanges()
}

// update stages the pending deployment with changes (deploy_transaction_execute in
// src/daemon/rpmostreed-transaction-types.cxx).
func (c *call) update(what update) error {
	if err := c.begin(); err != nil {
		return err
	}
	p, err := c.pending()
	if err != nil {
		return err
	}
	origin, base := p.deployed.Origin, p.deployed.Base.String()
	if what.refspec != "" {
		w, err := c.want(what.refspec, p)
		if err != nil {
			return err
		}
		if origin, err = c.origin(w, what, origin); err != nil {
			return err
		}
		base = w.commit
	}
	if origin, err = c.withPackages(origin, p.deployed.Base.String(), base, what); err != nil {
		return err
	}
	layer := c.layered
	if what.cached {
		layer = c.layeredFromCache
	}
	commit, err := layer(base, origin)
	if err != nil {
		return err
	}
	// The kernel arguments are those of the pending deployment.
	return c.stage(p.OSName, commit, origin, p.kargs)
}

// withPackages returns an origin with a change of packages. Names are compared with the packages of
// the old base; those that are only removed, with the packages of the next one, which the daemon
// has pulled by then.
func (c *call) withPackages(old ostree.Origin, base, next string, what update) (ostree.Origin, error) {
	db, err := c.database(base)
	if err != nil {
		return old, err
	}
	l := layersOf(old)
	for _, name := range what.uninstall {
		if !slices.Contains(l.requested, name) {
			return old, failf("Package/capability '%s' is not currently requested", name)
		}
		l.requested = slices.DeleteFunc(l.requested, func(have string) bool { return have == name })
	}
	for _, name := range what.install {
		if have, there := db.find(name); there && old.ContainerImageReference() == "" {
			return old, failf("\"%s\" is already provided by: %s. Use --allow-inactive to explicitly require it.", name, have.NEVRA)
		}
		if slices.Contains(l.requested, name) {
			return old, failf("Package/capability '%s' is already requested", name)
		}
		l.requested = append(l.requested, name)
	}
	for _, name := range what.reset {
		if !slices.Contains(l.removed, name) {
			return old, failf("No overrides for package '%s'", name)
		}
		l.removed = slices.DeleteFunc(l.removed, func(have string) bool { return have == name })
	}
	if len(what.install) == 0 || old.ContainerImageReference() != "" {
		if db, err = c.database(next); err != nil {
			return old, err
		}
	}
	for _, name := range what.remove {
		if _, there := db.find(name); !there {
			return old, failf("Package \"%s\" not found", name)
		}
		if slices.Contains(l.removed, name) {
			return old, failf("Override already exists for package '%s'", name)
		}
		l.removed = append(l.removed, name)
	}
	return withLayers(old, l)
}

func prefixed(prefix string, names []string) []string {
	all := make([]string, len(names))
	for i, name := range names {
		all[i] = prefix + name
	}
	return all
}
