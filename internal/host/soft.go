package host

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/ostree"
	"machine-pivot/internal/sepolicy"
)

// nextRoot is where systemd looks for the root of a soft reboot (systemd-soft-reboot.service(8)).
// nextBooted is libostree's record of what is there; it becomes /run/ostree-booted.
const (
	nextRoot   = "/run/nextroot"
	nextBooted = "/run/ostree/nextroot-booted"
	softUnit   = "/usr/lib/systemd/system/systemd-soft-reboot.service"
)

// bootComplete is libostree's unit that notes which system a soft reboot has entered. Soft reboots do not stop it, so by
// itself it runs after the first one only.
const bootComplete = "ostree-boot-complete.service"

// CheckSoft returns an error if no soft reboot is possible here, whatever the new system is.
func (h *Host) CheckSoft(ctx context.Context) error {
	if there, err := h.Has(softUnit); err != nil || !there {
		return errors.Join(err, errors.New("systemd is older than 254"))
	}
	if on, err := h.Sysroot().BootedComposefs(); err != nil || !on {
		return errors.Join(err, errors.New("the running system has no composefs, without which libostree prepares none"))
	}
	if _, err := h.Run(ctx, "ostree", "admin", "prepare-soft-reboot", "--help"); err != nil {
		return errors.New("libostree is older than 2025.3")
	}
	return nil
}

// SoftReboot restarts the userspace from a deployment, with the running kernel. libostree prepares
// that, or refuses: it requires composefs, and that the deployment has the kernel, the initramfs and
// the kernel arguments of the running system. Only the start of a kernel loads a policy of SELinux, so
// that must be the same, too. After an error, nothing of the preparation is left: with it, systemctl
// reboot would be a soft reboot.
func (h *Host) SoftReboot(ctx context.Context, d ostree.Deployment) error {
	err := h.prepareSoft(ctx, d)
	if err == nil {
		err = h.Softly(ctx)
	}
	if err != nil {
		err = errors.Join(err, h.forgetSoft(context.WithoutCancel(ctx)))
	}
	return err
}

func (h *Host) prepareSoft(ctx context.Context, d ostree.Deployment) error {
	if err := h.CheckNothingStaged(); err != nil { // with something staged, libostree drops the preparation at the shutdown
		return err
	}
	booted, err := h.Sysroot().Booted()
	if err == nil {
		err = samePolicy(booted.Path, d.Path)
	}
	if err != nil {
		return err
	}
	// What a killed preparation has left would be below the new one, and come back when that has been entered:
	// systemctl reboot would then be a soft reboot, into it.
	if err := h.forgetSoft(ctx); err != nil {
		return err
	}
	index, err := h.indexOf(d)
	if err != nil {
		return err
	}
	if _, err := h.Run(ctx, "ostree", "admin", "prepare-soft-reboot", strconv.Itoa(index)); err != nil {
		return fmt.Errorf("libostree does not prepare it: %w", err)
	}
	if there, err := h.Has(nextRoot + "/usr"); err != nil || !there {
		return errors.Join(err, errors.New("libostree reports that it is prepared, and there is nothing in "+nextRoot))
	}
	_, err = h.Run(ctx, "systemctl", "stop", bootComplete)
	return err
}

// noteSoft does what bootComplete does, if a soft reboot has entered the running system and that unit has not run since.
// Until then libostree takes the system before for the booted one: it would merge that one's /etc into the next.
func (h *Host) noteSoft() error {
	running, before, err := h.Sysroot().SoftlyEntered()
	if err != nil || running == "" {
		return err
	}
	if err := h.Disk.Rename(running, before); err != nil {
		return fmt.Errorf("cannot note which system the soft reboot has entered: %w", err)
	}
	return nil
}

// forgetSoft undoes a preparation, which may be incomplete, and those below it. In a mount namespace of its own, the
// unmounting is not seen by systemd; the removal of the directory is, since it detaches what is mounted there elsewhere.
func (h *Host) forgetSoft(ctx context.Context) error {
	if there, err := h.Has(nextRoot); err != nil || !there {
		return err
	}
	for !h.empty(nextRoot) {
		if _, err := h.Run(ctx, "umount", "--recursive", nextRoot); err != nil {
			return fmt.Errorf("cannot undo the preparation of a soft reboot: %w", err)
		}
	}
	if err := h.Disk.Remove(h.Path(nextRoot)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("cannot undo the preparation of a soft reboot: %w", err)
	}
	return hostfiles.Remove(h.Disk, h.Path(nextBooted))
}

// ForgetPrepared undoes what a killed program has prepared for a way into another system: the root of a soft reboot, a
// kernel that kexec has loaded. With either, systemctl reboot would enter that system, whatever the default is. So it
// precedes each change of the next boot, and each reboot.
func (h *Host) ForgetPrepared(ctx context.Context) error {
	return errors.Join(h.forgetSoft(ctx), h.forgetKexec())
}

// indexOf returns a deployment's index for libostree, which counts a staged deployment first.
func (h *Host) indexOf(d ostree.Deployment) (int, error) {
	all, err := h.Sysroot().Deployments()
	if err != nil {
		return 0, err
	}
	i := slices.IndexFunc(all, func(other ostree.Deployment) bool { return other.ID() == d.ID() })
	if i < 0 {
		return 0, fmt.Errorf("deployment %s has no boot entry", d.ID())
	}
	staged, err := h.Sysroot().Staged()
	if staged != nil {
		i++
	}
	return i, err
}

// samePolicy returns an error unless the systems at two paths have the same policy of SELinux: the
// same configuration and, if it is switched on, the same binary policy.
func samePolicy(running, next string) error {
	a, err := policyOf(running)
	if err != nil {
		return err
	}
	b, err := policyOf(next)
	if err == nil && a != b {
		err = errors.New("the new system has another policy of SELinux")
	}
	return err
}

// policyOf returns a digest of a system's policy; "" if SELinux is off.
func policyOf(root string) (string, error) {
	dir := filepath.Join(root, "etc/selinux")
	config, err := sepolicy.In(dir).Config()
	if err != nil || !config.On() {
		return "", err
	}
	files, err := filepath.Glob(filepath.Join(dir, config.Policy, "policy/policy.*"))
	if err != nil {
		return "", err
	}
	sum := sha256.New()
	fmt.Fprintln(sum, config.Mode, config.Policy)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return "", fmt.Errorf("cannot read the policy of SELinux: %w", err)
		}
		fmt.Fprintln(sum, filepath.Base(file), len(text))
		sum.Write(text)
	}
	return string(sum.Sum(nil)), nil
}

// softly asks systemd for a soft reboot; otherwise it is like reboot.
func softly(ctx context.Context) error {
	if err := blocked(ctx); err != nil {
		return err
	}
	return startTarget(ctx, "soft-reboot.target")
}
