package rpmostree

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/host"
	"machine-pivot/internal/ostree"
	"machine-pivot/pivot"
)

// Rollback is the engine that makes an existing deployment the next boot again, with its own
// /etc: libostree writes the boot entries in another order, with one atomic rename.
type Rollback struct {
	Sysroot *ostree.Sysroot
	Run     Run
	To      ostree.DeploymentRef
}

var _ pivot.Engine = (*Rollback)(nil)

// Preflight implements pivot.Engine. It always fails, as this engine makes no deployment of an image.
func (e *Rollback) Preflight(context.Context, pivot.Plan) error {
	return fault.New(fault.Internal, "cannot move to another image by going back")
}

// Accept implements pivot.Engine. An existing deployment is always accepted.
func (e *Rollback) Accept(context.Context, ostree.PrepareRoot) error { return nil }

// Check returns an error if no tool of this host can make a deployment the default.
func (e *Rollback) Check(ctx context.Context) error {
	plain := Ostree{Sysroot: e.Sysroot, Run: e.Run}
	tool, err := plain.queryTool(ctx, "ostree")
	if err != nil || tool.since(2023, 6) {
		return err
	}
	if _, err := os.Stat(filepath.Join(e.Sysroot.Root(), host.RpmOstreePath)); err == nil {
		return nil
	}
	return fault.New(fault.Refused, "libostree %s cannot make a deployment the default, and there is no rpm-ostree", tool.version).
		WithHint("it takes libostree 2023.6 or later")
}

// Prepare checks that a tool of this host can make the deployment the default, that it exists, and
// that no staged deployment would precede it. It writes nothing.
func (e *Rollback) Prepare(ctx context.Context, _ pivot.Request) error {
	if err := e.Check(ctx); err != nil {
		return err
	}
	staged, err := e.Sysroot.Staged()
	if err != nil {
		return err
	}
	if staged != nil {
		return fault.New(fault.Refused, "cannot roll back: a deployment is staged, and would still be the next boot").
			WithHint("remove it first: ostree admin undeploy 0")
	}
	_, err = e.index()
	return err
}

// index returns the deployment's index in boot order.
func (e *Rollback) index() (int, error) {
	all, err := e.Sysroot.Deployments()
	if err != nil {
		return 0, err
	}
	for i, d := range all {
		if d.DeploymentRef == e.To {
			return i, nil
		}
	}
	return 0, fmt.Errorf("cannot roll back: deployment %s has no boot entry", e.To.ID())
}

// Commit makes the deployment the default and checks that it is.
func (e *Rollback) Commit(ctx context.Context, _ pivot.Request) error {
	i, err := e.index()
	if err != nil {
		return err
	}
	_, err = e.Run(ctx, "ostree", "admin", "set-default", strconv.Itoa(i))
	if err != nil && strings.Contains(err.Error(), "Unknown") {
		// libostree before 2023.6. Every rpm-ostree can do it.
		err = e.byRpmOstree(ctx)
	}
	if err != nil {
		return fmt.Errorf("cannot make deployment %s the default: %w", e.To.ID(), err)
	}
	if i, err = e.index(); err == nil && i != 0 {
		err = fmt.Errorf("cannot roll back: success was reported but deployment %s is not the default", e.To.ID())
	}
	return err
}

// byRpmOstree rolls back with rpm-ostree, and ignores a failure of its client if the boot entries
// are as wanted. With zipl it does not, because zipl runs after the entries are written.
func (e *Rollback) byRpmOstree(ctx context.Context) error {
	_, failure := host.WithTmp(e.Sysroot.Root(), e.Run)(ctx, "rpm-ostree", "rollback")
	if failure == nil {
		return nil
	}
	repo, err := ostree.OpenRepo(e.Sysroot.RepoPath())
	if err != nil || repo.BootLoader() == "zipl" {
		return failure
	}
	if i, err := e.index(); err != nil || i != 0 {
		return failure
	}
	return nil
}

// Discard implements pivot.Engine. It is a no-op, as Prepare makes nothing.
func (e *Rollback) Discard(context.Context) error { return nil }
