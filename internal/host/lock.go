package host

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"machine-pivot/internal/fault"
)

// Lock takes the lock for changing the machine. It is held until unlock is called or the
// process ends. With it, libostree knows which system runs: see noteSoft.
func (h *Host) Lock() (unlock func() error, err error) {
	unlock, err = h.lock("/run/pivot/lock", func() error {
		return fault.New(fault.Unavailable, "cannot change this machine: another pivot is at work").
			WithHint("wait for it; pivot status shows how far it is")
	})
	if err != nil {
		return nil, err
	}
	if err := h.noteSoft(); err != nil {
		return nil, errors.Join(err, unlock())
	}
	return unlock, nil
}

// LockStaticPods takes the lock for writing static pods. It is not that of Lock, which a run may hold for
// an hour: static pods are no part of a transaction.
func (h *Host) LockStaticPods() (unlock func() error, err error) {
	return h.lock("/run/pivot/static-pods.lock", func() error {
		return fault.New(fault.Unavailable, "cannot write static pods: another pivot is at it").WithHint("wait until it has finished: systemctl status pivot-static-pods")
	})
}

// lock takes a lock. The error of a held one says so.
func (h *Host) lock(name string, held func() error) (unlock func() error, err error) {
	path := h.Path(name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("cannot lock the machine: %w", err)
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("cannot lock the machine: %w", err)
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if err == nil {
		return f.Close, nil
	}
	if errors.Is(err, unix.EWOULDBLOCK) {
		err = held()
	}
	return nil, errors.Join(err, f.Close())
}

// WithLock calls run with the machine's lock held. While another pivot holds the lock, it calls
// wait between tries and returns its error, if any.
func (h *Host) WithLock(ctx context.Context, wait func(context.Context) error, run func() error) error {
	for {
		unlock, err := h.Lock()
		if err == nil {
			defer func() { _ = unlock() }() // also if run panics
			return run()
		}
		if fault.KindOf(err).Transient() {
			err = wait(ctx)
		}
		if err != nil {
			return err
		}
	}
}
