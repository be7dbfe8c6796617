package hostfiles

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// LockMode is the mode of an open file description lock (fcntl(2), F_OFD_SETLK). Such a lock belongs to the open file,
// not to the process, and conflicts with the process locks of other programs. Closing the file releases it.
type LockMode int16

const (
	// SharedLock excludes only exclusive locks. The file must be open for reading.
	SharedLock LockMode = unix.F_RDLCK
	// ExclusiveLock excludes all other locks. The file must be open for writing.
	ExclusiveLock LockMode = unix.F_WRLCK
)

// lockInterval is the time between two attempts.
const lockInterval = 100 * time.Millisecond

// TryLock locks the whole file. It returns false if another open file has a lock that conflicts.
func TryLock(f *os.File, mode LockMode) (bool, error) {
	err := unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: int16(mode)})
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES) {
		return false, nil
	}
	return err == nil, err
}

// WaitLock locks the whole file as soon as no other lock conflicts. If the context is done first, it
// returns the context's error and cause. It polls, because waiting in the kernel cannot be cancelled.
func WaitLock(ctx context.Context, f *os.File, mode LockMode) error {
	for {
		if locked, err := TryLock(f, mode); locked || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return lockEnded(ctx)
		case <-time.After(lockInterval):
		}
	}
}

func lockEnded(ctx context.Context) error {
	cause := context.Cause(ctx)
	if errors.Is(cause, ctx.Err()) {
		return cause
	}
	return fmt.Errorf("%w: %w", cause, ctx.Err())
}
