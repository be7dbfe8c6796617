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
