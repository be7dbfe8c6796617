package ostree

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"machine-pivot/internal/hostfiles"
)

// lockShared takes the repository's lock in shared mode, as libostree's writers do: writers
// do not exclude each other, but they exclude pruning. The lock is an open file description
// lock on the file .lock. Closing the returned file releases it.
func (r *Repo) lockShared(ctx context.Context) (*os.File, error) {
	f, err := r.openLock()
	if err != nil {
		return nil, err
	}
	if r.config.lockTimeout >= 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, r.config.lockTimeout, fmt.Errorf("another program has held it for %v", r.config.lockTimeout))
		defer cancel()
	}
	if err := hostfiles.WaitLock(ctx, f, hostfiles.SharedLock); err != nil {
		return nil, errors.Join(fmt.Errorf("cannot lock repository: %w", err), f.Close())
	}
	return f, nil
}

// openLock opens the file of the repository's lock.
func (r *Repo) openLock() (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(r.path, ".lock"), os.O_CREATE|os.O_RDWR, 0o660)
	if err != nil {
		return nil, fmt.Errorf("cannot lock repository: %w", err)
	}
	return f, nil
}

// Idle calls work while no program writes to the repository: it holds the lock in exclusive mode meanwhile.
// If one does, Idle returns at once and does not call work.
func (r *Repo) Idle(work func() error) (err error) {
	f, err := r.openLock()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	locked, err := hostfiles.TryLock(f, hostfiles.ExclusiveLock)
	if err != nil {
		return fmt.Errorf("cannot lock repository: %w", err)
	}
	if !locked {
		return nil
	}
	return work()
}
