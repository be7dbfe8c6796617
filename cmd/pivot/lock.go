package main

import (
	"machine-pivot/internal/cli"
	"machine-pivot/internal/host"
)

// withLock calls run while it holds the machine's lock. Errors of run are marked as reported,
// because run reports them itself.
func withLock(h *host.Host, run func() error) error {
	unlock, err := h.Lock()
	if err != nil {
		return err
	}
	defer unlock()
	cli.OutliveReaders()
	return reported(run())
}

// exitUnchanged is the exit status if nothing had to change, with --unchanged-exit-77.
const exitUnchanged = 77

// changeWithLock is withLock for a change by hand of a machine that can be changed. The run reports whether anything had to change. If not, the
// exit status is 77 with --unchanged-exit-77.
func changeWithLock(h *host.Host, unchanged77 bool, run func() (changed bool, err error)) error {
	if err := h.CheckBooted(); err != nil {
		return err
	}
	var changed bool
	err := withLock(h, func() (err error) {
		changed, err = run()
		return err
	})
	if err == nil && !changed && unchanged77 {
		return cli.ExitStatus(exitUnchanged)
	}
	return err
}
