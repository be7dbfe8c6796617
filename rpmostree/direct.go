package rpmostree

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/host"
	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/ostree"
	"machine-pivot/pivot"
)

// Direct is the engine for a system that has not started yet. Its tools run in a chroot. It uses "ostree admin deploy"
// without staging: nothing would finalize a staged deployment when the initramfs ends, and to stage, libostree since
// 2025.2 starts a unit of the system.
//
// It makes nothing before Commit, so there is nothing to discard. What only the started system
// can do is an error of kind fault.Later.
type Direct struct {
	Ostree // what is the same as for a started system; its Run runs in the chroot
	// State are directories of the system, in addition to /etc, in which the initramfs writes
	// files. These get the new system's SELinux labels too.
	State []string
}

var _ pivot.Engine = (*Direct)(nil)

// Preflight implements pivot.Engine. It writes nothing. Changes of packages are no reason to step
// aside yet if the host has rpm-ostree: the image can be imported here, and the started system
// continues from there.
func (e *Direct) Preflight(ctx context.Context, plan pivot.Plan) error {
	if len(plan.Packages) > 0 {
		if _, err := os.Stat(filepath.Join(e.Sysroot.Root(), host.RpmOstreePath)); err != nil {
			return cannotChange(plan.Packages)
		}
	}
	return e.checkMove(ctx)
}

// checkMove returns an error if the engine cannot make a deployment of another image, as far as
// this is known without the image.
func (e *Direct) checkMove(ctx context.Context) error {
	if err := e.checkLayered(); err != nil {
		return fault.New(fault.Later, "%w", err)
	}
	if err := e.checkSandbox(ctx); err != nil {
		return err
	}
	return e.checkBootLoader()
}

// Prepare checks what can be checked before the commit, and changes nothing.
func (e *Direct) Prepare(ctx context.Context, r pivot.Spec) error {
	if !r.Image.IsZero() {
		if err := e.checkMove(ctx); err != nil {
			return err
		}
	}
	staged, err := e.Sysroot.Staged()
	if err != nil {
		return err
	}
	if staged != nil {
		return fault.New(fault.Later, "cannot deploy: another update, %s, waits for the reboot", staged.Target.ID()).
			WithHint("reboot into it, or remove it: ostree admin undeploy 0")
	}
	booted, err := e.Sysroot.Booted()
	if err != nil {
		return err
	}
	if err := e.checkRemovable(); err != nil {
		return err
	}
	if err := e.CheckSpace(ctx, r.Commit); err != nil {
		return err
	}
	if lost := lostRoot(r, r.Merge.Options); lost != "" {
		return fmt.Errorf("cannot deploy: the kernel arguments lack root=%s", lost)
	}
	if changes := host.OnTop(booted).Changes(r.Packages); len(changes) > 0 {
		return fault.New(fault.Later, "cannot change packages from here: %s", changeList(changes))
	}
	if err := e.checkNeeds(ctx, r, booted); err != nil {
		return err
	}
	commit, err := ostree.ParseChecksum(r.Commit)
	if err != nil {
		return err
	}
	if r, err = e.forDeployment(r, booted, commit); err != nil {
		return err
	}
	if err := e.checkRefresh(ctx, booted, commit); err != nil {
		return err
	}
	if err := e.checkEntries(ctx, booted, commit, r.Entries); err != nil {
		return err
	}
	return e.checkLock()
}

// Commit makes the deployment, with the entries overlaid on the /etc that libostree merges. The
// commit point is libostree's rename of /boot/loader.
func (e *Direct) Commit(ctx context.Context, r pivot.Spec) error {
	return e.orTakenBack(ctx, r, func() error { return e.commitOnce(ctx, r) })
}

func (e *Direct) commitOnce(ctx context.Context, r pivot.Spec) error {
	booted, err := e.Sysroot.Booted()
	if err != nil {
		return err
	}
	commit, err := ostree.ParseChecksum(r.Commit)
	if err != nil {
		return err
	}
	if r, err = e.forDeployment(r, booted, commit); err != nil {
		return err
	}
	needs, err := e.needs(r, booted)
	switch {
	case err != nil:
	case needs.any():
		err = e.commitBeside(ctx, r, booted, needs)
	default:
		err = e.deploy(ctx, r, booted)
	}
	if err != nil {
		return fmt.Errorf("cannot deploy %s: %w", r.Commit, err)
	}
	return e.checkCommitted(r, nil)
}

// deploy runs "ostree admin deploy" with the entries overlaid on /etc. It leaves the repository unpruned, as libostree
// does when it finalizes a staged deployment. A first boot makes nothing that a prune would remove, and walking over
// all objects is half of the command's processor time. The next change prunes.
func (e *Direct) deploy(ctx context.Context, r pivot.Spec, booted ostree.Deployment, options ...string) error {
	commit, err := ostree.ParseChecksum(r.Commit)
	if err != nil {
		return err
	}
	views, err := e.viewsFor(booted, commit, r.Entries)
	if err != nil {
		return err
	}
	return hostfiles.WithOverlays(func() error {
		if err := e.keepPrevious(ctx, booted, commit); err != nil {
			return err
		}
		return e.Ostree.deploy(ctx, r, booted, append([]string{"--no-prune"}, options...)...)
	}, views...)
}

// Discard implements pivot.Engine. It is a no-op, as Prepare makes nothing.
func (e *Direct) Discard(context.Context) error { return nil }

// checkBootLoader returns an error if the boot loader is zipl. libostree runs zipl after it has
// renamed /boot/loader, and zipl needs the machine's devices, which the chroot lacks.
func (e *Direct) checkBootLoader() error {
	repo, err := ostree.OpenRepo(e.Sysroot.RepoPath())
	if err != nil {
		return err
	}
	if repo.BootLoader() == "zipl" {
		return fault.New(fault.Later, "cannot deploy from here: the boot loader is zipl")
	}
	return nil
}
