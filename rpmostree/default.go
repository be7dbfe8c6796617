package rpmostree

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/host"
	"machine-pivot/internal/ostree"
)

// Default makes an existing deployment the next boot again, with its own /etc: libostree writes
// the boot entries in another order, with one atomic rename.
type Default struct {
	Sysroot *ostree.Sysroot
	Run     Run
	Note    func(string) // for people
}

// Check returns an error if no tool of this host can make a deployment the default.
func (e Default) Check(ctx context.Context) error {
	plain := Ostree{Sysroot: e.Sysroot, Run: e.Run}
	tool, err := plain.queryTool(ctx, "ostree")
	if err != nil || tool.since(2023, 6) {
		return err
	}
	if _, err := os.Stat(filepath.Join(e.Sysroot.Root(), host.RpmOstreePath)); err == nil {
		return nil
	}
	return fault.New(fault.Refused, "libostree %s cannot make a deployment the default, and there is no rpm-ostree", tool.version).
		WithHint("see ostree --version: it takes libostree 2023.6 or later. Choose the system in the boot menu; if the running one is to stay, remove the next boot: ostree admin undeploy 0")
}

// CheckTo checks that a tool of this host can make a deployment the default, that it exists, and
// that no staged deployment would precede it. One that is locked does not: libostree removes it when the
// default changes. It writes nothing.
func (e Default) CheckTo(ctx context.Context, to ostree.DeploymentRef) error {
	if err := e.Check(ctx); err != nil {
		return err
	}
	staged, err := e.Sysroot.Staged()
	if err != nil {
		return err
	}
	if staged.Next() {
		return fault.New(fault.Refused, "cannot roll back: a deployment is staged, and would still be the next boot").
			WithHint("remove it first: ostree admin undeploy 0")
	}
	_, err = e.index(to)
	return err
}

// index returns the deployment's index in boot order.
func (e Default) index(to ostree.DeploymentRef) (int, error) {
	all, err := e.Sysroot.Deployments()
	if err != nil {
		return 0, err
	}
	i := slices.IndexFunc(all, func(d ostree.Deployment) bool { return d.DeploymentRef == to })
	if i < 0 {
		return 0, fmt.Errorf("cannot roll back: deployment %s has no boot entry", to.ID())
	}
	return i, nil
}

// Make makes a deployment the default, unless it already is, and checks that it is. It names a staged deployment, which
// that drops, before.
func (e Default) Make(ctx context.Context, to ostree.DeploymentRef) error {
	i, err := e.index(to)
	if err != nil || i == 0 {
		return err
	}
	staged, err := e.Sysroot.Staged()
	if err != nil {
		return err
	}
	counted := i
	if staged != nil { // the tool counts it first
		counted++
		e.Note(fmt.Sprintf("deployment %s is staged, by another program, and will be dropped: libostree keeps none when the default changes; its program can stage it again", staged.Target.ID()))
	}
	undo, err := e.Startable(to)
	if err != nil {
		return fmt.Errorf("cannot make deployment %s the default: %w", to.ID(), err)
	}
	_, err = e.Run(ctx, "ostree", "admin", "set-default", strconv.Itoa(counted))
	if err != nil && strings.Contains(err.Error(), "Unknown") {
		// libostree before 2023.6. Every rpm-ostree can do it.
		err = e.byRpmOstree(ctx)
	}
	now, rerr := e.index(to)
	if err != nil && (rerr != nil || now != 0 || e.zipl()) { // libostree may fail after it has written the boot entries
		return errors.Join(fmt.Errorf("cannot make deployment %s the default: %w", to.ID(), err), undo())
	}
	if i, err = now, rerr; err == nil && i != 0 {
		err = fmt.Errorf("cannot roll back: success was reported but deployment %s is not the default", to.ID())
	}
	return err
}

// byRpmOstree rolls back with rpm-ostree. Its client can fail although it has done so.
func (e Default) byRpmOstree(ctx context.Context) error {
	_, err := host.WithTmp(e.Sysroot.Root(), e.Run)(ctx, "rpm-ostree", "rollback")
	return err
}

func (e Default) zipl() bool { return (&Ostree{Sysroot: e.Sysroot}).zipl() }

// zipl reports whether the boot loader may be zipl, which runs after the boot entries are written.
func (e *Ostree) zipl() bool {
	repo, err := ostree.OpenRepo(e.Sysroot.RepoPath())
	return err != nil || repo.BootLoader() == "zipl"
}
