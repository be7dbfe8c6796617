package rpmostree

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// finalizing is libostree's unit that makes what is staged the next boot when the system
// shuts down, by its ExecStop. keepBack takes that away from it, until the next boot at most.
const (
	finalizing = "ostree-finalize-staged.service"
	keepBack   = "/run/systemd/system/" + finalizing + ".d/pivot.conf"
)

// heldBack does work in which rpm-ostree replaces a staged deployment that is locked.
//
// rpm-ostree before 2024.6 locks by a file, which libostree from 2023.7 on removes when it
// replaces what is staged. What is staged then is unlocked, until it is locked again; so
// for that time no shutdown may make it the next boot.
func (p *packages) heldBack(ctx context.Context, rpmOstree tool, work func() error) (err error) {
	if rpmOstree.since(2024, 6) {
		return work()
	}
	libostree, err := p.engine.ask(ctx, "ostree")
	if err != nil {
		return err
	}
	if !libostree.since(2023, 7) {
		return work()
	}
	if err := p.engine.keepBack(ctx); err != nil {
		return err
	}
	p.relock = true
	defer func() { err = errors.Join(err, p.engine.letGo(ctx)) }()
	return work()
}

// keepBack keeps what is staged from becoming the next boot.
func (e *RpmOstree) keepBack(ctx context.Context) error {
	file := filepath.Join(e.Sysroot.Root(), keepBack)
	err := os.MkdirAll(filepath.Dir(file), 0o755)
	if err == nil {
		err = os.WriteFile(file, []byte("[Service]\nExecStop=\n"), 0o644)
	}
	if err == nil {
		_, err = e.Run(ctx, "systemctl", "daemon-reload")
	}
	if err != nil {
		return fmt.Errorf("cannot keep %s from its work: %w", finalizing, err)
	}
	return nil
}

// letGo takes back what keepBack did, also if an earlier run did it.
func (e *RpmOstree) letGo(ctx context.Context) error {
	err := os.Remove(filepath.Join(e.Sysroot.Root(), keepBack))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		_, err = e.Run(context.WithoutCancel(ctx), "systemctl", "daemon-reload")
	}
	if err != nil {
		return fmt.Errorf("cannot let %s do its work again: %w", finalizing, err)
	}
	return nil
}
