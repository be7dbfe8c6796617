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

	"machine-pivot/fault"
	"machine-pivot/hostfiles"
	"machine-pivot/kargs"
	"machine-pivot/ostree"
	"machine-pivot/pivot"
)

// Direct is the engine for a system that has not started yet, whose tools run in a
// chroot: one "ostree admin deploy" that stages nothing. In an initramfs there is
// no shutdown that would finalize, and libostree from 2025.2 on wants to start a
// unit of the system's when it stages.
//
// It makes nothing before Commit, so there is nothing to discard. What it cannot
// do the started system can: such errors are of kind fault.Later.
type Direct struct {
	Sysroot *ostree.Sysroot
	Run     Run // in the chroot
}

var _ pivot.Engine = (*Direct)(nil)

// Check is an error if the engine cannot make a deployment of another image, as is
// known without one. Nothing is written.
func (e *Direct) Check(ctx context.Context) error {
	if err := e.plain().Check(ctx); err != nil {
		return fault.New(fault.Later, "%w", err)
	}
	return e.checkBootLoader()
}

// Prepare checks what can be checked before the commit, and changes nothing.
func (e *Direct) Prepare(ctx context.Context, r pivot.Request) error {
	if !r.Image.IsZero() {
		if err := e.Check(ctx); err != nil {
			return err
		}
	}
	staged, err := e.Sysroot.Staged()
	if err != nil {
		return err
	}
	if staged != nil {
		return fault.New(fault.Later, "cannot deploy: deployment %s is staged already", staged.Target.ID())
	}
	booted, err := e.Sysroot.Booted()
	if err != nil {
		return err
	}
	if lost := missing(r.Merge.Options.Values("root"), r.Kargs.Values("root")); len(lost) > 0 {
		return fmt.Errorf("cannot deploy: the kernel arguments lack root=%s", strings.Join(lost, ", root="))
	}
	if _, err := e.labelling(booted, r.Files); err != nil {
		return err
	}
	return e.plain().free()
}

// Commit makes the deployment with the files laid over the /etc that libostree
// merges. The commit point is libostree's one rename of /boot/loader.
func (e *Direct) Commit(ctx context.Context, r pivot.Request) error {
	booted, err := e.Sysroot.Booted()
	if err != nil {
		return err
	}
	labelling, err := e.labelling(booted, r.Files)
	if err != nil {
		return err
	}
	deploy := func() error {
		if err := e.plain().label(ctx, labelling); err != nil {
			return err
		}
		return e.plain().deploy(ctx, r, booted)
	}
	overlay := hostfiles.Overlay{Dir: filepath.Join(booted.Path, "etc"), At: "/etc", Files: r.Files}
	if err := hostfiles.WithOverlays(deploy, overlay); err != nil {
		return fmt.Errorf("cannot deploy %s: %w", r.Commit, err)
	}
	return e.plain().checkCommitted(r)
}

// Discard implements pivot.Engine: nothing was made.
func (e *Direct) Discard(context.Context) error { return nil }

// plain is the engine of a started system, whose parts this one uses.
func (e *Direct) plain() *Ostree { return &Ostree{Sysroot: e.Sysroot, Run: e.Run} }

// checkBootLoader is an error where the boot entries alone are not what boots:
// zipl, which libostree runs after its rename, wants the machine's own devices.
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

// labelling is the command that labels the files; nil where the deployment's
// SELinux is off. The kernel has no policy yet, so its configuration decides.
func (e *Direct) labelling(booted ostree.Deployment, files []hostfiles.File) ([]string, error) {
	on, err := e.selinux(booted.Path)
	if err != nil || !on || len(files) == 0 {
		return nil, err
	}
	if !slices.ContainsFunc([]string{"/usr/sbin/setfiles", "/sbin/setfiles", "/usr/bin/setfiles"}, e.has) {
		return nil, fault.New(fault.Later, "cannot label files: the system has SELinux but no setfiles")
	}
	return labelCommand(booted, files, e.seen)
}

// selinux reports whether the deployment will run with SELinux.
func (e *Direct) selinux(deployment string) (bool, error) {
	mode, err := selinuxConfig(deployment, "SELINUX")
	if errors.Is(err, fs.ErrNotExist) || mode == "disabled" {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("cannot find out about SELinux: %w", err)
	}
	line, err := os.ReadFile(filepath.Join(e.Sysroot.Root(), "proc/cmdline"))
	if err != nil {
		return false, fmt.Errorf("cannot find out about SELinux: %w", err)
	}
	if slices.Contains(kargs.Split(string(line)).Values("selinux"), "0") {
		return false, nil
	}
	policy, err := policyOf(deployment)
	if err != nil {
		return false, fmt.Errorf("cannot find out about SELinux: %w", err)
	}
	_, err = os.Stat(contextsOf(deployment, policy))
	return err == nil, nil
}

// has reports whether the system has a file.
func (e *Direct) has(path string) bool {
	_, err := hostfiles.ResolveIn(e.Sysroot.Root(), path)
	return err == nil
}

// seen is the path that a file has inside the chroot.
func (e *Direct) seen(path string) string {
	return "/" + strings.TrimPrefix(strings.TrimPrefix(path, e.Sysroot.Root()), "/")
}
