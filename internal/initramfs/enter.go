package initramfs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/coreos/go-systemd/v22/dbus"

	"machine-pivot/internal/enter"
	"machine-pivot/internal/ostree"
	"machine-pivot/kargs"
)

// bootEdit is the unit of Fedora CoreOS and RHCOS that adds arguments to the boot entry on a first boot.
const bootEdit = "coreos-boot-edit.service"

// Running reads what the machine was started with. It must be called before a commit.
func (i *Initramfs) Running(ctx context.Context) (enter.Running, error) {
	sysroot := ostree.OpenSysroot(i.Root)
	booted, err := sysroot.Booted()
	if err != nil {
		return enter.Running{}, err
	}
	all, err := sysroot.Deployments()
	if err != nil {
		return enter.Running{}, err
	}
	running := enter.Running{Deployment: booted.DeploymentRef}
	for _, d := range all {
		if d.DeploymentRef == booted.DeploymentRef {
			running.Entry = d.Entry
		}
	}
	text, err := os.ReadFile(i.path("/proc/cmdline"))
	if err != nil {
		return running, fmt.Errorf("cannot read the kernel command line: %w", err)
	}
	running.Cmdline = kargs.Split(string(text))
	for _, link := range running.Cmdline.Values("ostree") {
		if running.Linked, err = sysroot.Linked(link); err != nil {
			return running, fmt.Errorf("cannot follow the kernel command line: %w", err)
		}
	}
	running.Edited, err = isActive(ctx, bootEdit)
	return running, err
}

// RequestEnter has systemd enter the committed deployment when this process has ended. The error says why that cannot
// be.
func (i *Initramfs) RequestEnter(running enter.Running, deployment string) error {
	if _, err := os.Stat(enter.PrepareRootPath); err != nil {
		return fmt.Errorf("cannot enter the new system: %w", err)
	}
	if !hasUnit(enter.Unit) {
		return errors.New("cannot enter the new system: the initramfs has no " + enter.Unit)
	}
	sysroot := ostree.OpenSysroot(i.Root)
	committed, err := i.committed(sysroot)
	if err != nil {
		return err
	}
	committed.Deployment = deployment
	if reasons := enter.Reasons(running, committed); len(reasons) > 0 {
		return fmt.Errorf("cannot enter the new system: %s", strings.Join(reasons, "; "))
	}
	return enter.Request{Deployment: deployment, Link: committed.Default.Entry.Ostree()}.Write("/run")
}

// committed reads what the next boot starts.
func (i *Initramfs) committed(sysroot *ostree.Sysroot) (c enter.Committed, err error) {
	if c.Default, err = sysroot.Default(); err != nil {
		return c, fmt.Errorf("cannot enter the new system: %w", err)
	}
	repo, err := ostree.OpenRepo(sysroot.RepoPath())
	if err != nil {
		return c, err
	}
	c.BootLoader = repo.BootLoader()
	c.Aboot = sysroot.HasAboot(c.Default.Entry)
	return c, nil
}

// isActive reports whether a unit of the initramfs is active.
func isActive(ctx context.Context, unit string) (bool, error) {
	if !hasUnit(unit) {
		return false, nil
	}
	conn, err := dbus.NewSystemdConnectionContext(ctx)
	if err != nil {
		return false, fmt.Errorf("cannot reach systemd: %w", err)
	}
	defer conn.Close()
	state, err := activeState(ctx, conn, unit)
	return state == "active", err
}

// StopAlone stops a unit of the initramfs, if it is active. What requires the unit goes on: that would be the whole
// boot.
func StopAlone(ctx context.Context, unit string) error {
	if !hasUnit(unit) {
		return nil
	}
	return stopUnit(ctx, unit, "ignore-dependencies")
}
