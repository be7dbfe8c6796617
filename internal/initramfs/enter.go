package initramfs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/coreos/go-systemd/v22/dbus"

	"machine-pivot/internal/ostree"
	"machine-pivot/kargs"
)

// bootEdit is the unit of Fedora CoreOS and RHCOS that adds arguments to the boot entry on a first boot.
const bootEdit = "coreos-boot-edit.service"

// Running reads what the machine was started with. It must be called before a commit. The error says why no deployment
// can be entered here.
func (i *Initramfs) Running(ctx context.Context) (Running, error) {
	if _, err := os.Stat(prepareRootPath); err != nil {
		return Running{}, fmt.Errorf("the initramfs has no ostree-prepare-root: %w", err)
	}
	if !hasUnit(enterUnit) {
		return Running{}, errors.New("the initramfs has no " + enterUnit)
	}
	if err := checkQueued(ctx); err != nil {
		return Running{}, err
	}
	sysroot := ostree.OpenSysroot(i.Root)
	booted, err := sysroot.Booted()
	if err != nil {
		return Running{}, err
	}
	all, err := sysroot.Deployments()
	if err != nil {
		return Running{}, err
	}
	running := Running{Deployment: booted.DeploymentRef}
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
func (i *Initramfs) RequestEnter(ctx context.Context, running Running, deployment string) error {
	sysroot := ostree.OpenSysroot(i.Root)
	next, err := sysroot.Default()
	if err != nil {
		return err
	}
	made := committed{Deployment: deployment, Default: next, Aboot: sysroot.HasAboot(next.Entry)}
	if err := refusal(reasonsOf(running, made)); err != nil {
		return err
	}
	if err := checkQueued(ctx); err != nil {
		return err
	}
	return EnterRequest{Deployment: deployment, Link: next.Entry.Ostree()}.write("/run")
}

// checkQueued returns an error unless systemd is going to start enterUnit when this process has ended: pivot says that
// the boot continues only if something continues. In a boot, initrd.target wants the unit, so its job is queued from
// the beginning and waits for the unit of this process, after which the other is ordered. In the emergency shell, all
// jobs are gone, and a unit that is started by hand brings no others.
func checkQueued(ctx context.Context) error {
	return withSystemd(ctx, answerTimeout, func(ctx context.Context, conn *dbus.Conn) error {
		jobs, err := conn.ListJobsContext(ctx)
		if err != nil {
			return fmt.Errorf("cannot list systemd's jobs: %w", err)
		}
		if !slices.ContainsFunc(jobs, func(j dbus.JobStatus) bool { return j.Unit == enterUnit && j.JobType == "start" }) {
			return errors.New("systemd is not going to start " + enterUnit + ", as in the emergency shell")
		}
		return nil
	})
}

// isActive reports whether a unit of the initramfs is active.
func isActive(ctx context.Context, unit string) (active bool, err error) {
	if !hasUnit(unit) {
		return false, nil
	}
	err = withSystemd(ctx, answerTimeout, func(ctx context.Context, conn *dbus.Conn) error {
		state, err := activeState(ctx, conn, unit)
		active = state == "active"
		return err
	})
	return active, err
}

// stopAlone stops a unit of the initramfs, if it is active. What requires the unit continues: that would be the whole
// boot.
func stopAlone(ctx context.Context, unit string) error {
	if !hasUnit(unit) {
		return nil
	}
	return stopUnit(ctx, unit, "ignore-dependencies")
}
