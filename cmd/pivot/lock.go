package main

import (
	"context"
	"time"

	"machine-pivot/internal/cli"
	"machine-pivot/internal/fault"
	"machine-pivot/internal/host"
	"machine-pivot/internal/retry"
)

// withLock calls run while it holds the machine's lock. Errors of run are marked as reported,
// because run reports them itself.
func withLock(h *host.Host, run func() error) error {
	unlock, err := h.Lock()
	if err != nil {
		return err
	}
	defer unlock()
	return reporting(run)
}

// reporting calls run, which reports its errors itself.
func reporting(run func() error) error {
	cli.OutliveReaders()
	return reported(run())
}

// bootWait is how long the programs of units that run early in each boot wait for the lock. It is less than
// the units' time limits.
const bootWait = 2 * time.Minute

// withBootLock calls run while it holds the machine's lock, for which it waits. It is for the programs of units that run
// early in each boot: those of others, such as pivot-trial.service, hold the lock for moments then.
func withBootLock(ctx context.Context, h *host.Host, run func() error) error {
	limited, cancel := context.WithTimeoutCause(ctx, bootWait,
		fault.New(fault.Unavailable, "cannot change this machine: another pivot has been at work for %s", bootWait))
	defer cancel()
	return h.WithLock(limited, func(ctx context.Context) error { return retry.Sleep(ctx, time.Second/5) }, run)
}

// withFirstBootLock calls run while it holds the machine's lock, as withLock does. The unit of the first boot waits for
// it, because pivot-trial.service may be at work then.
func withFirstBootLock(ctx context.Context, h *host.Host, run func() error) error {
	if byUnit() {
		return withBootLock(ctx, h, func() error { return reporting(run) })
	}
	return withLock(h, run)
}
