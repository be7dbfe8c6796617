package rpmostree

import (
	"fmt"
	"os"
	"path/filepath"

	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/ostree"
)

// stageHeld lets work stage a deployment in a private mount namespace. Nobody else sees it before it is held back: work's
// tool lets go of the sysroot's lock, for which another may wait to finalize, before it ends.
func (e *Ostree) stageHeld(work func() error) error {
	dir := e.Sysroot.RunDir()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	var staged *ostree.Staged
	err := hostfiles.WithOverlays(func() (err error) {
		if err = work(); err == nil {
			staged, err = e.Sysroot.Staged()
		}
		return err
	}, hostfiles.Overlay{Dir: dir, At: runtimeDir})
	if err != nil {
		return err
	}
	return e.showHeld(staged)
}

// hold holds back what rpm-ostree's daemon has staged, if it has. From now on to the commit nobody can make it the next
// boot, also not who unlocks it, by rules of its own. The timer of "bootc upgrade --apply" unlocks what is staged if
// that is the image that it follows, and reboots (upgrade in bootc's cli.rs). So do "rpm-ostree finalize-deployment"
// and "ostree admin lock-finalization --unlock". A lock protects only from who does not look at it.
func (e *Ostree) hold() error {
	staged, err := e.Sysroot.Staged()
	if err != nil {
		return err
	}
	return e.showHeld(staged)
}

// showHeld writes what is staged, if anything is, as held back.
func (e *Ostree) showHeld(staged *ostree.Staged) error {
	if staged == nil || staged.Held {
		return nil
	}
	state, err := staged.HeldBack()
	if err == nil {
		err = hostfiles.Replace(hostfiles.OS{}, filepath.Join(e.Sysroot.RunDir(), ostree.StagedFile), state, os.FileMode(0o644))
	}
	if err != nil {
		return fmt.Errorf("cannot hold the staged deployment back: %w", err)
	}
	return nil
}
