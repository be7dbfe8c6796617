package rpmostree

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"machine-pivot/internal/ostree"
)

var (
	cleanupOptions = map[string]option{
		"b": {}, "base": {}, "p": {}, "pending": {}, "r": {}, "rollback": {}, "m": {}, "repomd": {}, "os": {value: true},
	}
	finalizeOptions = map[string]option{
		"allow-missing-checksum": {since: release{2019, 4}}, "allow-unlocked": {since: release{2019, 4}},
	}
)

// printChanges simulates how the client lists the changed packages after the daemon's transaction
// has succeeded. For that it needs a directory in /tmp (rpmostree-clientlib.cxx,
// rpmostree-rpm-util.cxx). Without one it fails, although the transaction is done.
func (c *call) printChanges() error {
	dir, err := os.MkdirTemp(filepath.Join(c.Root, "tmp"), "rpmostree-dbquery-*")
	if errors.Is(err, unix.EROFS) {
		return failf("Failed to load package list: Failed to invoke rpm-ostree shlib-backend: error: mkdirat: Read-only file system")
	}
	fmt.Fprintln(c.stdout, "Changes queued for next boot. Run \"systemctl reboot\" to start a reboot")
	return errors.Join(err, os.Remove(dir))
}

// rollback makes the second deployment the first.
func (c *call) rollback() (int, error) {
	if err := c.begin(); err != nil {
		return exitFailed, err
	}
	if _, err := c.Ostree(c.ctx, "ostree", "admin", "set-default", "1"); err != nil {
		return exitFailed, err
	}
	return exitDone, c.printChanges()
}

// cleanup removes the pending deployment, staged or not, and unused image refs. It does not
// implement the other options.
func (c *call) cleanup() (int, error) {
	if err := c.begin(); err != nil {
		return exitFailed, err
	}
	p, err := c.pending()
	if err != nil {
		return exitFailed, err
	}
	if p.Booted || !c.options.has("p") && !c.options.has("pending") {
		fmt.Fprintln(c.stdout, "Deployments unchanged.")
		return exitDone, c.collect()
	}
	if _, err := c.Ostree(c.ctx, "ostree", "admin", "undeploy", "0"); err != nil {
		return exitFailed, err
	}
	return exitDone, c.collect()
}

// finalize unlocks the staged deployment and reboots (rpmostreed-transaction-types.cxx).
func (c *call) finalize() (int, error) {
	if err := c.begin(); err != nil {
		return exitFailed, err
	}
	staged, err := c.sysroot().Staged()
	if err != nil {
		return exitFailed, err
	}
	if staged == nil {
		return exitFailed, failf("No pending staged deployment found")
	}
	p, err := c.pending()
	if err != nil {
		return exitFailed, err
	}
	// For a container the checksum is the digest.
	base := p.deployed.Base.String()
	if p.Digest != "" {
		base = p.Digest
	}
	switch {
	case len(c.options.operand) == 0 && !c.options.has("allow-missing-checksum"):
		return exitFailed, failf("Missing expected checksum")
	case len(c.options.operand) > 0 && c.options.operand[0] != base:
		return exitFailed, failf("Expected staged base checksum %s, but found %s", c.options.operand[0], base)
	case !staged.Locked && !c.options.has("allow-unlocked"):
		return exitFailed, failf("Staged deployment already unlocked")
	}
	if err := c.unlock(staged); err != nil {
		return exitFailed, err
	}
	return exitDone, c.Reboot(c.ctx)
}

func (c *call) unlock(staged *ostree.Staged) error {
	dir := c.sysroot().RunDir()
	state, err := staged.Unlocked(staged.KernelArguments, nil)
	if err != nil {
		return err
	}
	if err := replaceFile(filepath.Join(dir, ostree.StagedFile), state); err != nil {
		return err
	}
	if err := os.Remove(filepath.Join(dir, ostree.LockFile)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
