package hostfiles_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"machine-pivot/internal/hostfiles"
)

// TestTry: of two open files, the second gets a lock only if both are shared, or when the first is closed.
func TestTry(t *testing.T) {
	for _, c := range []struct {
		name          string
		first, second hostfiles.LockMode
		want          bool
	}{
		{"shared, shared", hostfiles.SharedLock, hostfiles.SharedLock, true},
		{"shared, exclusive", hostfiles.SharedLock, hostfiles.ExclusiveLock, false},
		{"exclusive, shared", hostfiles.ExclusiveLock, hostfiles.SharedLock, false},
		{"exclusive, exclusive", hostfiles.ExclusiveLock, hostfiles.ExclusiveLock, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "lock")
			first, second := open(t, path), open(t, path)
			expect(t, first, c.first, true)
			expect(t, second, c.second, c.want)
			if err := first.Close(); err != nil {
				t.Fatal(err)
			}
			expect(t, second, c.second, true)
		})
	}
}

// TestWait: Wait returns when the lock is released, or with the reason why it was not waited for longer.
func TestWait(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(dir, "lock")
		holder, waiter := open(t, path), open(t, path)
		expect(t, holder, hostfiles.ExclusiveLock, true)
		busy := errors.New("somebody else has it")
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, busy)
		defer cancel()
		if err := hostfiles.WaitLock(ctx, waiter, hostfiles.SharedLock); !errors.Is(err, busy) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the wait for a lock that is held ended with %v", err)
		}
		time.AfterFunc(time.Hour, func() { _ = holder.Close() })
		start := time.Now()
		if err := hostfiles.WaitLock(t.Context(), waiter, hostfiles.SharedLock); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took < time.Hour || took > time.Hour+time.Second {
			t.Errorf("the lock was taken after %v, and released after an hour", took)
		}
	})
}

func open(t *testing.T, path string) *os.File {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

func expect(t *testing.T, f *os.File, mode hostfiles.LockMode, want bool) {
	t.Helper()
	if locked, err := hostfiles.TryLock(f, mode); locked != want || err != nil {
		t.Errorf("Try returned %v, %v; want %v", locked, err, want)
	}
}
