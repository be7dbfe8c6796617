package rpmostree

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// finalizeUnit is libostree's unit. Its ExecStop finalizes the staged deployment at shutdown. finalizeDropIn disables
// that, until the next boot at most.
const (
	finalizeUnit   = "ostree-finalize-staged.service"
	finalizeDropIn = "/run/systemd/system/" + finalizeUnit + ".d/pivot.conf"
)

// withoutFinalize calls work, in which rpm-ostree replaces a locked staged deployment.
//
// rpm-ostree before 2024.6 locks with a file, which libostree since 2023.7 removes when it
// replaces a staged deployment. The new one is then unlocked until complete locks it again. A
// shutdown must not finalize it in between.
func (p *packages) withoutFinalize(ctx context.Context, rpmOstree tool, work func() error) (err error) {
	if rpmOstree.since(2024, 6) {
		return work()
	}
	libostree, err := p.engine.queryTool(ctx, "ostree")
	if err != nil {
		return err
	}
	if !libostree.since(2023, 7) {
		return work()
	}
	if err := p.engine.disableFinalize(ctx); err != nil {
		return err
	}
	p.relock = true
	defer func() { err = errors.Join(err, p.engine.enableFinalize(ctx)) }()
	return work()
}

// disableFinalize prevents a shutdown from finalizing the staged deployment.
func (e *RpmOstree) disableFinalize(ctx context.Context) error {
	file := filepath.Join(e.Sysroot.Root(), finalizeDropIn)
	err := os.MkdirAll(filepath.Dir(file), 0o755)
	if err == nil {
		err = os.WriteFile(file, []byte("[Service]\nExecStop=\n"), 0o644)
	}
	if err == nil {
		_, err = e.Run(ctx, "systemctl", "daemon-reload")
	}
	if err != nil {
		return fmt.Errorf("cannot keep %s from its work: %w", finalizeUnit, err)
	}
	return nil
}

// enableFinalize undoes disableFinalize of this run or of an earlier one.
func (e *RpmOstree) enableFinalize(ctx context.Context) error {
	err := os.Remove(filepath.Join(e.Sysroot.Root(), finalizeDropIn))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		_, err = e.Run(context.WithoutCancel(ctx), "systemctl", "daemon-reload")
	}
	if err != nil {
		return fmt.Errorf("cannot let %s do its work again: %w", finalizeUnit, err)
	}
	return nil
}
