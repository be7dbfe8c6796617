package rpmostree

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/ostree"
	"machine-pivot/pivot"
)

// move lets rpm-ostree move to another image, with what is layered on the booted one. It makes the
// requested changes of packages along with that if it can; otherwise they are left to change, and
// the image is first assembled with the old packages.
func (p *packages) move(ctx context.Context, booted ostree.Deployment, image *rebase) error {
	work := func() error { return p.moveChanged(ctx, booted, image) }
	first, err := p.engine.bootedFirst()
	switch {
	case err != nil:
	case first:
		err = work()
	default: // rpm-ostree replaces what is staged: see rebase.before
		err = p.withoutFinalize(ctx, image.tool, work)
	}
	if err != nil {
		return fmt.Errorf("cannot rebase to %s: %w", p.request.Image.Reference(), err)
	}
	return nil
}

func (p *packages) moveChanged(ctx context.Context, booted ostree.Deployment, image *rebase) error {
	changes, err := p.expected(ctx, booted)
	if err != nil {
		return err
	}
	layered := booted.Origin.LayeredPackages()
	if len(changes) > 0 {
		done, stays := false, slices.Concat(without(layered, namesOf(changes, pivot.PackageUninstall)), namesOf(changes, pivot.PackageInstall))
		err := p.keepingLayered(ctx, stays, func() (err error) {
			done, err = p.makeAtOnce(ctx, update{image: image, changes: changes, offered: p.offered()}, image.tool)
			return err
		})
		if done || err != nil {
			return err
		}
	}
	return p.keepingLayered(ctx, layered, func() error {
		return p.makeBy(ctx, call{image.command(), update{image: image}}, image.tool)
	})
}

// expected returns the changes that a deployment of the requested image needs if all that is layered
// on the booted deployment is kept. The image's commit is in the repository already.
func (p *packages) expected(ctx context.Context, booted ostree.Deployment) ([]pivot.PackageChange, error) {
	if p.request.Packages.IsZero() {
		return nil, nil
	}
	kept := ostree.Deployment{Origin: booted.Origin}
	var err error
	if kept.Checksum, err = ostree.ParseChecksum(p.request.Commit); err != nil {
		return nil, err
	}
	p.have, err = p.engine.packagesOf(ctx, kept, p.request.Packages)
	return p.have.Changes(p.request.Packages), err
}

// without returns the names that are not in others.
func without(names, others []string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool { return slices.Contains(others, name) })
}

// cannotAtOnce returns why the daemon cannot be asked for an update; "" if it can. Earlier daemons
// ignore the option that locks what they stage, as all do with options that they do not know.
func (t tool) cannotAtOnce() string {
	if !t.since(2019, 5) {
		return "rpm-ostree " + t.version + " does not lock what it stages at its daemon's interface"
	}
	return ""
}

// aboutPackage matches messages about names in an update. The daemon compares these, by its own rules, with the
// deployment it starts from, its image's packages, or those of the requested image (deploy_transaction_execute in
// rpmostreed-transaction-types.cxx).
var aboutPackage = regexp.MustCompile(`(?i)\b(package|packages|override|overrides)\b|provided by`)

// final reports whether a failure of an update at once is final. No message about a package is, while calls one after the
// other could make the update. They cannot where the packages themselves do not fit, or are nowhere (refused): in the end
// the same set of packages is resolved.
func final(err error) bool {
	if _, unsupported := errors.AsType[*unsupportedError](err); unsupported {
		return false
	}
	failure, failed := errors.AsType[*failedError](err)
	kind := fault.KindOf(err)
	return !failed || kind.Transient() || kind == fault.Refused || !aboutPackage.MatchString(failure.Message)
}

// makeAtOnce lets the daemon make an update in one transaction. It returns false if that is not
// possible, and then nothing is different for the calls that do the same one after the other.
func (p *packages) makeAtOnce(ctx context.Context, u update, t tool) (done bool, err error) {
	why := t.cannotAtOnce()
	if why == "" {
		err = p.transact(ctx, u, t, func(ctx context.Context) error {
			return u.do(ctx, p.engine.Sysroot.Root(), p.request.Merge.Stateroot, func(line string) { p.engine.Note("rpm-ostree: " + line) })
		})
		if err == nil || ctx.Err() != nil || final(err) {
			return err == nil, err
		}
		why = err.Error()
	}
	p.engine.Note(fmt.Sprintf("rpm-ostree makes more than one deployment, one after the other: %s", why))
	return false, nil
}
