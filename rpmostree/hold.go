package rpmostree

import (
	"fmt"
	"os"
	"path/filepath"

	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/ostree"
)

// hold holds the staged deployment back, if there is one: from now on to the commit nobody can make it the next boot, also not
// who unlocks it, by rules of its own. "bootc upgrade --apply", which its timer runs, unlocks what is staged if the
// image that it follows is the same, and reboots (upgrade in bootc's cli.rs); "rpm-ostree finalize-deployment" and
// "ostree admin lock-finalization --unlock" do so, too. A lock protects only from who does not look at it.
func (e *Ostree) hold() error {
	staged, err := e.Sysroot.Staged()
	if err != nil || staged == nil || staged.Held {
		return err
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
