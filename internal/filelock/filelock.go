// Package filelock takes open file description locks (fcntl(2), F_OFD_SETLK). They belong to the
// open file and not to the process, and conflict with the process locks of other programs. A lock
// is released when the file is closed.
package filelock

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Mode is how a file is locked.
type Mode int16

const (
	// Shared excludes only exclusive locks. The file must be open for reading.
	Shared Mode = unix.F_RDLCK
	// Exclusive excludes all other locks. The file must be open for writing.
	Exclusive Mode = unix.F_WRLCK
)

// interval is the time between two attempts.
const interval = 100 * time.Millisecond

// Try locks the whole file. It returns false if another open file has a lock that conflicts.
func Try(f *os.File, mode Mode) (bool, error) {
	err := unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: int16(mode)})
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES) {
		return false, nil
	}
	return err == nil, err
}

// Wait locks the whole file as soon as no other lock conflicts. If the context is done first, it
// returns the context's error and cause. It polls, because waiting in the kernel cannot be cancelled.
func Wait(ctx context.Context, f *os.File, mode Mode) error {
	for {
		if locked, err := Try(f, mode); locked || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ended(ctx)
		case <-time.After(interval):
		}
	}
}

func ended(ctx context.Context) error {
	cause := context.Cause(ctx)
	if errors.Is(cause, ctx.Err()) {
		return cause
	}
	return fmt.Errorf("%w: %w", cause, ctx.Err())
}
