package ostree

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
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
		ctx, cancel = context.WithTimeout(ctx, r.config.lockTimeout)
		defer cancel()
	}
	request := unix.Flock_t{Type: unix.F_RDLCK}
	for {
		err := unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &request)
		if err == nil {
			return f, nil
		}
		if !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EACCES) {
			return nil, errors.Join(fmt.Errorf("cannot lock repository: %w", err), f.Close())
		}
		// Polled, because waiting in the kernel cannot be cancelled by a context.
		select {
		case <-ctx.Done():
			return nil, errors.Join(fmt.Errorf("cannot lock repository: another program holds it: %w", ctx.Err()), f.Close())
		case <-time.After(100 * time.Millisecond):
		}
	}
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
// If one does, Idle returns false at once and does not call work.
func (r *Repo) Idle(work func() error) (idle bool, err error) {
	f, err := r.openLock()
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	request := unix.Flock_t{Type: unix.F_WRLCK}
	switch err := unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &request); {
	case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EACCES):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("cannot lock repository: %w", err)
	}
	return true, work()
}
