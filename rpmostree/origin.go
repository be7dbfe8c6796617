package rpmostree

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/ostree"
)

// Follow changes which image reference the origin of an existing deployment names, and nothing else. reference is in
// ostree's format. It does not wait for another program that changes the deployments.
func Follow(sysroot *ostree.Sysroot, run Run, of ostree.DeploymentRef, reference string) error {
	if err := (&Ostree{Sysroot: sysroot, Run: run}).checkLock(); err != nil {
		return err
	}
	d, err := sysroot.Deployment(of)
	if err != nil {
		return err
	}
	return renameImage(sysroot, d, reference)
}

// renameImage makes an image reference the source in a deployment's origin. bootc and libostree read origins anew each
// time, rpm-ostree's daemon when the mtime of the directory with the deployments changes.
func renameImage(sysroot *ostree.Sysroot, d ostree.Deployment, reference string) error {
	dir, err := hostfiles.OpenWritable(sysroot.Physical(), filepath.Join(sysroot.Physical(), "ostree/deploy"))
	if err != nil {
		return err
	}
	defer dir.Close()
	deployments := fmt.Sprintf("/proc/self/fd/%d", dir.Fd())
	file := filepath.Join(deployments, d.Stateroot, "deploy", filepath.Base(d.Path)+".origin")
	origin := d.Origin.WithContainer(reference)
	label, err := hostfiles.LabelOf(file) // libostree has given it one that is not the directory's
	if err == nil {
		err = hostfiles.Replace(hostfiles.OS{}, file, origin.Bytes(), 0o644)
	}
	if err == nil && label != "" {
		err = hostfiles.SetLabel(file, label)
	}
	if err != nil {
		return fmt.Errorf("cannot name the image in the deployment's origin: %w", err)
	}
	now := time.Now()
	if err := os.Chtimes(deployments, now, now); err != nil {
		return fmt.Errorf("cannot tell rpm-ostree of the deployment's origin: %w", err)
	}
	return nil
}
