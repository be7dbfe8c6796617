// Package watch tells that something may have happened at paths: by inotify, so within
// milliseconds, and without looking at anything meanwhile.
package watch

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
)

// A change seldom comes alone: what follows within settle is seen with it, but no change
// waits longer than atMost.
const (
	settle = 200 * time.Millisecond
	atMost = 2 * time.Second
)

// Watcher watches the directories that lead to some paths. Close it.
type Watcher struct {
	events *fsnotify.Watcher
	names  map[string]map[string]bool // by directory that is watched: the names in it that count
}

// New is a watcher of nothing.
func New() (*Watcher, error) {
	events, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, fmt.Errorf("cannot watch files: %w", err)
	}
	return &Watcher{events: events}, nil
}

// Close ends the watching.
func (w *Watcher) Close() error { return w.events.Close() }

// Paths makes these, below root, what is watched. Nothing need be there: a path comes to be
// by a directory that does. What comes and goes may bring other directories, so this is to
// be called again after each Wait.
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
		// A directory that was replaced is another one under the same name.
		err := w.events.Add(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) && !isFile(dir) {
			return fmt.Errorf("cannot watch %s: %w", dir, err)
		}
	}
	return nil
}

// isFile reports whether something else than a directory is there: nothing is below it.
func isFile(dir string) bool {
	info, err := os.Stat(dir)
	return err == nil && !info.IsDir()
}

// Wait returns when something may have happened at one of the paths, and after longest at
// the latest. The error is of ctx, or says why nothing can be watched any longer.
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
			return nil // whatever may have happened
		case e := <-w.events.Events:
			if !w.counts(e.Name) {
				continue
			}
			quiet = time.After(settle)
			if last == nil {
				last = time.After(atMost)
			}
		}
	}
}

// counts reports whether an event is about a path: about one of the names in a directory,
// or about such a directory itself.
func (w *Watcher) counts(name string) bool {
	return w.names[name] != nil || w.names[filepath.Dir(name)][filepath.Base(name)]
}
