package rpmostree

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/ostree"
	"machine-pivot/internal/sepolicy"
	"machine-pivot/pivot"
)

// Direct has no staged deployment to work on before the commit. If a deployment must be labelled
// or checked before it may be the next boot, it is first made beside the default one, and made
// the default afterwards.

// needs are the reasons to do that.
type needs struct {
	labels    bool // the new system will run with SELinux
	composefs bool // the new system boots only from a composefs image
	keys      bool // the boot entry has keys that "ostree admin deploy" does not carry over
}

func (n needs) any() bool { return n.labels || n.composefs || n.keys }

func (e *Direct) needs(r pivot.Spec, booted ostree.Deployment) (n needs, err error) {
	if n.labels, err = e.labels(r, booted); err != nil {
		return n, err
	}
	commit, err := ostree.ParseChecksum(r.Commit)
	if err != nil {
		return n, err
	}
	_, demands, err := e.demands(commit, r)
	n.composefs = demands.Composefs
	keys, kerr := e.keysOf(booted)
	n.keys = len(keys) > 0
	return n, errors.Join(err, kerr)
}

// checkNeeds returns an error if there are needs, but libostree cannot make an existing
// deployment the default.
func (e *Direct) checkNeeds(ctx context.Context, r pivot.Spec, booted ostree.Deployment) error {
	needs, err := e.needs(r, booted)
	if err != nil || !needs.any() {
		return err
	}
	tool, err := e.queryTool(ctx, "ostree")
	if err != nil {
		return err
	}
	switch {
	case tool.since(2023, 6):
		return nil
	case needs.keys:
		return fault.New(fault.Later, "libostree %s is too old to keep what other programs have written into the boot entry: it makes a new deployment the default at once (since 2023.6 it need not)", tool.version)
	case needs.labels:
		return fault.New(fault.Later, "libostree %s is too old to have the new system's files labelled for SELinux first: it makes a new deployment the default at once (since 2023.6 it need not)", tool.version)
	}
	return fault.New(fault.Later, "libostree %s is too old to have the new system's composefs image checked first: it makes a new deployment the default at once (since 2023.6 it need not)", tool.version)
}

// commitBeside makes the deployment beside the default one, labels it if necessary, checks it,
// and then makes it the default. After an earlier failure it removes the deployment.
func (e *Direct) commitBeside(ctx context.Context, r pivot.Spec, booted ostree.Deployment, needs needs) error {
	if err := e.deploy(ctx, r, booted, "--not-as-default"); err != nil {
		return err
	}
	next, err := e.findNew(r, booted)
	if err != nil {
		return err
	}
	contexts, err := e.finish(ctx, r, next, needs)
	if err == nil {
		err = e.keep(booted, next)
	}
	if err == nil {
		err = e.setDefault(ctx, next)
	}
	if err != nil {
		return e.takeBack(ctx, next, err)
	}
	if needs.labels {
		return e.labelBoot(contexts)
	}
	return nil
}

// keep gives the boot entry of a new deployment, which is not the default yet, the keys that it needs as the default.
func (e *Direct) keep(booted, next ostree.Deployment) error {
	keys, err := e.keysOf(booted)
	if err == nil {
		err = e.addKeys(next, keys)
	}
	if err == nil {
		_, err = Default{Sysroot: e.Sysroot, Run: e.Run}.Startable(next.DeploymentRef)
	}
	return err
}

// finish labels the deployment, if necessary, and checks it against the request. contexts is nil
// if it needs no labels.
func (e *Direct) finish(ctx context.Context, r pivot.Spec, next ostree.Deployment, needs needs) (contexts *sepolicy.Contexts, err error) {
	if needs.labels {
		if contexts, err = e.label(next); err != nil {
			return nil, err
		}
	}
	return contexts, errors.Join(checkDeployment(next, r), e.checkDemands(next, r), e.checkObjects(ctx, next.Checksum, r))
}

// findNew returns the deployment that was just made. It follows the booted one.
func (e *Direct) findNew(r pivot.Spec, booted ostree.Deployment) (ostree.Deployment, error) {
	all, err := e.Sysroot.Deployments()
	if err != nil {
		return ostree.Deployment{}, err
	}
	i := indexOf(all, booted) + 1
	if i == 0 || i == len(all) || !carries(all[i], r.Commit) {
		return ostree.Deployment{}, fault.New(fault.Internal, "ostree reported success, but the list of deployments has no new one after the booted one")
	}
	return all[i], nil
}

// indexOf returns a deployment's index in boot order, as libostree's commands use it; -1 if it is
// not in all.
func indexOf(all []ostree.Deployment, d ostree.Deployment) int {
	return slices.IndexFunc(all, func(other ostree.Deployment) bool { return other.ID() == d.ID() })
}

// setDefault makes a deployment the next boot. This is the commit.
func (e *Direct) setDefault(ctx context.Context, d ostree.Deployment) error {
	all, err := e.Sysroot.Deployments()
	if err == nil {
		_, err = e.Run(ctx, "ostree", "admin", "set-default", strconv.Itoa(indexOf(all, d)))
	}
	return err
}

// takeBack removes a deployment, unless it is the next boot already, and returns err, extended if
// the removal fails.
func (e *Direct) takeBack(ctx context.Context, d ostree.Deployment, err error) error {
	all, lerr := e.Sysroot.Deployments()
	if i := indexOf(all, d); lerr == nil && i > 0 {
		_, lerr = e.Run(ctx, "ostree", "admin", "undeploy", strconv.Itoa(i))
	}
	if lerr != nil {
		err = fmt.Errorf("%w (and what was made could not be removed: %v)", err, lerr)
	}
	return err
}
