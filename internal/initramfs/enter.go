package initramfs

import (
	"context"
	"errors"
	"fmt"
	"os"

	"machine-pivot/internal/enter"
	"machine-pivot/internal/ostree"
	"machine-pivot/internal/systemdbus"
	"machine-pivot/kargs"
)

// bootEdit is the unit of Fedora CoreOS and RHCOS that adds arguments to the boot entry on a first boot.
const bootEdit = "coreos-boot-edit.service"

// Running reads what the machine was started with. It must be called before a commit. The error says why no deployment
// can be entered here.
func (i *Initramfs) Running(ctx context.Context) (enter.Running, error) {
	if _, err := os.Stat(enter.PrepareRootPath); err != nil {
		return enter.Running{}, fmt.Errorf("the initramfs has no ostree-prepare-root: %w", err)
	}
	if !hasUnit(enter.Unit) {
		return enter.Running{}, errors.New("the initramfs has no " + enter.Unit)
	}
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
	running.Aboot = sysroot.HasAboot(running.Entry)
	repo, err := ostree.OpenRepo(sysroot.RepoPath())
	if err != nil {
		return running, err
	}
	running.BootLoader = repo.BootLoader()
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
	sysroot := ostree.OpenSysroot(i.Root)
	next, err := sysroot.Default()
	if err != nil {
		return err
	}
	committed := enter.Committed{Deployment: deployment, Default: next, Aboot: sysroot.HasAboot(next.Entry)}
	if err := enter.Refusal(enter.Reasons(running, committed)); err != nil {
		return err
	}
	return enter.Request{Deployment: deployment, Link: next.Entry.Ostree()}.Write("/run")
}

// isActive reports whether a unit of the initramfs is active.
func isActive(ctx context.Context, unit string) (bool, error) {
	if !hasUnit(unit) {
		return false, nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, answerTimeout, fmt.Errorf("systemd does not answer within %s", answerTimeout))
	defer cancel()
	conn, err := systemdbus.Dial(ctx, systemdbus.Socket)
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
