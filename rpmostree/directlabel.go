package rpmostree

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/ostree"
	"machine-pivot/internal/sepolicy"
	"machine-pivot/pivot"
)

// In the initramfs the kernel has no SELinux policy yet, so it does not label new files. Neither
// does libostree: before 2024.3 it leaves the new /etc without labels, and since then it gives
// it the labels of /usr/etc. A system that enforces its policy does not start with that. So
// Direct labels the deployment before it makes it the default, which requires a libostree that
// can do that separately.

// labels reports whether the requested deployment will run with SELinux.
func (e *Direct) labels(r pivot.Spec, booted ostree.Deployment) (bool, error) {
	if runs, err := e.kernelRuns(r); err != nil || !runs {
		return false, err
	}
	commit, err := ostree.ParseChecksum(r.Commit)
	if err != nil {
		return false, err
	}
	next, err := e.nextSELinux(booted, commit)
	if err != nil {
		return false, err
	}
	config, err := next.Config()
	return config.On(), err
}

// kernelRuns reports whether a kernel with the request's arguments runs with SELinux. If the
// arguments do not decide this, it assumes what the running kernel has.
func (e *Direct) kernelRuns(r pivot.Spec) (bool, error) {
	has := func(key, value string) bool { return slices.Contains(r.Kargs.Values(key), value) }
	switch {
	case has("selinux", "0"):
		return false, nil
	case has("selinux", "1"), has("security", "selinux"):
		return true, nil
	}
	// Without SELinux the kernel has no selinuxfs (proc_filesystems(5)).
	known, err := os.ReadFile(filepath.Join(e.Sysroot.Root(), "proc/filesystems"))
	if err != nil {
		return false, fmt.Errorf("cannot find out about SELinux: %w", err)
	}
	return bytes.Contains(known, []byte("\tselinuxfs\n")), nil
}

// label labels a deployment by its own policy, and the other files of the new system that were
// written in this boot. It checks the result.
func (e *Direct) label(next ostree.Deployment) (*sepolicy.Contexts, error) {
	files := sepolicy.In(filepath.Join(next.Path, "etc/selinux"))
	config, err := files.Config()
	if err != nil {
		return nil, err
	}
	contexts, err := files.Contexts(config.Policy)
	if err != nil {
		return nil, err
	}
	for name, dir := range e.labelled(next) {
		if err := contexts.Apply(dir, name); err != nil {
			return nil, err
		}
	}
	// libostree labels an origin like this configuration file.
	origin, known, err := contexts.Label("/etc/ostree/remotes.d/origin.conf", 0)
	if err != nil {
		return nil, err
	}
	if known {
		if err := hostfiles.SetLabel(next.Path+".origin", origin); err != nil {
			return nil, err
		}
	}
	if err := (hostfiles.OS{}).SyncAll(e.Sysroot.Physical()); err != nil {
		return nil, fmt.Errorf("cannot write labels: %w", err)
	}
	return contexts, e.readBack(contexts, next)
}

// labelled returns the directories to label, by their paths in the new system.
func (e *Direct) labelled(next ostree.Deployment) map[string]string {
	dirs := map[string]string{"/etc": filepath.Join(next.Path, "etc")}
	for _, name := range e.State {
		dirs[name] = filepath.Join(e.Sysroot.Root(), name)
	}
	return dirs
}

// readBack returns an error if a file has another label than the policy says.
func (e *Direct) readBack(contexts *sepolicy.Contexts, next ostree.Deployment) error {
	for name, dir := range e.labelled(next) {
		if err := contexts.Check(dir, name); err != nil {
			return fmt.Errorf("cannot trust the new deployment: %w", err)
		}
	}
	return nil
}

// labelBoot labels the boot entries and the links to deployments, which the commit has written.
// Nothing in the new system depends on these labels. A /boot on FAT cannot have any.
func (e *Direct) labelBoot(contexts *sepolicy.Contexts) error {
	links, err := filepath.Glob(filepath.Join(e.Sysroot.Physical(), "ostree/boot.*"))
	if err != nil {
		return err
	}
	for _, link := range links {
		if err := filepath.WalkDir(link, func(path string, _ fs.DirEntry, err error) error {
			return errors.Join(err, hostfiles.InheritLabel(path))
		}); err != nil {
			return fmt.Errorf("cannot label the links to the deployments: %w", err)
		}
	}
	boot, err := filepath.EvalSymlinks(filepath.Join(e.Sysroot.Root(), "boot"))
	if err != nil {
		return fmt.Errorf("cannot label the boot entries: %w", err)
	}
	if err := contexts.Apply(boot, "/boot"); !errors.Is(err, unix.EOPNOTSUPP) {
		return err
	}
	return nil
}
