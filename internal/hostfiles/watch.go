package hostfiles

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/fsnotify/fsnotify"
	"golang.org/x/sys/unix"
)

// Changes tend to come in groups: Wait returns when nothing has happened for quietTime, but at
// most groupTime after the first change.
const (
	quietTime = 200 * time.Millisecond
	groupTime = 2 * time.Second
)

// Watcher tells that something may have happened at given paths: it watches the directories that lead to them, by
// inotify, so it notices a change within milliseconds and polls nothing. It must be closed.
type Watcher struct {
	events *fsnotify.Watcher
	names  map[string]map[string]bool // the names that matter, by watched directory
}

// NewWatcher returns a Watcher that watches nothing yet.
func NewWatcher() (*Watcher, error) {
	events, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, fmt.Errorf("cannot watch files: %w", err)
	}
	return &Watcher{events: events}, nil
}

// Close stops watching.
func (w *Watcher) Close() error { return w.events.Close() }

// AnyName is a path's last element that stands for every name in its directory.
const AnyName = "*"

// Paths sets the paths to watch, below root. AnyName counts as each name of a directory. A path need not
// exist: the directories above it that exist are watched, too. They may have come or gone after an event, so Paths must be called again
// after each Wait. A directory that cannot be entered is skipped like one that does not exist.
func (w *Watcher) Paths(root string, paths []string) error {
	names := map[string]map[string]bool{}
	for _, path := range paths {
		for name := filepath.Clean(path); name != "/" && name != "."; name = filepath.Dir(name) {
			dir := filepath.Join(root, filepath.Dir(name))
			if names[dir] == nil {
				names[dir] = map[string]bool{}
			}
			names[dir][filepath.Base(name)] = true
		}
	}
	for dir := range w.names {
		if names[dir] == nil {
			_ = w.events.Remove(dir) // it may be gone
		}
	}
	w.names = names
	for dir := range names {
		// Always add: a directory that was replaced is a different inode under the same name.
		err := w.events.Add(dir)
		if err != nil && !cannotBeEntered(err) {
			return fmt.Errorf("cannot watch %s: %w", dir, err)
		}
	}
	return nil
}

// cannotBeEntered reports whether an error is due to what is at a path, or on the way to it: nothing, no directory, a
// link to itself, or a user's mount. Users decide that in their directories, so it must not end the watch. Not so if
// the kernel has no watches left.
func cannotBeEntered(err error) bool {
	known := []error{unix.ENOENT, unix.ENOTDIR, unix.ELOOP, unix.EACCES, unix.ENOTCONN}
	return slices.ContainsFunc(known, func(is error) bool { return errors.Is(err, is) })
}

// Wait returns when something may have happened at one of the paths, but after longest at the
// latest. It returns the cause of ctx when ctx ends, and an error if watching is no longer
// possible.
func (w *Watcher) Wait(ctx context.Context, longest time.Duration) error {
	until := time.After(longest)
	var quiet, last <-chan time.Time // both nil until something has happened
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-until:
			return nil
		case <-quiet:
			return nil
		case <-last:
			return nil
		case err := <-w.events.Errors:
			if !errors.Is(err, fsnotify.ErrEventOverflow) {
				return fmt.Errorf("cannot watch files: %w", err)
			}
			return nil // events were lost, so anything may have happened
		case e := <-w.events.Events:
			if !w.counts(e.Name) {
				continue
			}
			quiet = time.After(quietTime)
			if last == nil {
				last = time.After(groupTime)
			}
		}
	}
}

// counts reports whether an event concerns one of the paths: a relevant name in a watched
// directory, or a watched directory itself.
func (w *Watcher) counts(name string) bool {
	beside := w.names[filepath.Dir(name)]
	return w.names[name] != nil || beside[filepath.Base(name)] || beside[AnyName]
}
