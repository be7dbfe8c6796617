package ostree

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// Finish makes the commit part of the repository and sets refs to it. Everything
// that the commit is made of must be there, from this import or from before;
// what is missing is named and nothing is set. What was added but does not belong
// to the commit is dropped.
//
// The order is that of libostree: all content durable under temporary names, then
// renamed, then the directories durable, then the refs. A power cut finds either
// no ref, or one to a whole commit.
func (im *Import) Finish(ctx context.Context, commit Checksum, refs ...string) error {
	if err := im.finish(ctx, commit, refs); err != nil {
		return fmt.Errorf("cannot finish import of commit %s: %w", commit, err)
	}
	return nil
}

func (im *Import) finish(ctx context.Context, commit Checksum, refs []string) error {
	objects, err := im.closure(ctx, commit)
	if err != nil {
		return err
	}
	if err := im.sync(); err != nil {
		return err
	}
	partial := im.repo.partialPath(commit)
	if err := os.WriteFile(partial, nil, 0o644); err != nil {
		return err
	}
	if err := im.publish(objects); err != nil {
		return err
	}
	for _, ref := range refs {
		if err := im.repo.setRef(ref, commit); err != nil {
			return err
		}
	}
	if err := os.Remove(partial); err != nil {
		return err
	}
	// Others notice new refs by the directory's time.
	now := time.Now()
	return os.Chtimes(im.repo.path, now, now)
}

// sync makes what is staged durable, all at once.
func (im *Import) sync() error {
	if !im.repo.config.fsync || im.repo.config.perObjectFsync {
		return nil
	}
	dir, err := os.Open(im.dir)
	if err != nil {
		return err
	}
	defer dir.Close()
	return unix.Syncfs(int(dir.Fd()))
}

// publish renames staged objects into place: contents first, the commit last, so
// that a name never refers to what is not there yet.
func (im *Import) publish(objects []ObjectName) error {
	touched := map[string]bool{filepath.Join(im.repo.path, "objects"): true}
	slices.SortStableFunc(objects, func(a, b ObjectName) int { return rank(a.Type) - rank(b.Type) })
	for i, n := range objects {
		if i > 0 && rank(n.Type) != rank(objects[i-1].Type) {
			if err := im.syncDirs(touched); err != nil {
				return err
			}
		}
		to := im.repo.objectPath(n)
		touched[filepath.Dir(to)] = true
		if err := im.place(n, to); err != nil {
			return err
		}
	}
	return im.syncDirs(touched)
}

func rank(t ObjectType) int {
	switch t {
	case File:
		return 0
	case DirTree, DirMeta:
		return 1
	case CommitMeta:
		return 2
	}
	return 3
}

// place renames one object. One that came there in the meantime stays: it is the same.
func (im *Import) place(n ObjectName, to string) error {
	if err := os.Mkdir(filepath.Dir(to), 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	flags := uint(unix.RENAME_NOREPLACE)
	if n.Type == CommitMeta {
		flags = 0
	}
	err := unix.Renameat2(unix.AT_FDCWD, im.path(n), unix.AT_FDCWD, to, flags)
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("cannot place object %s: %w", n, err)
	}
	return nil
}

// syncDirs makes renames durable and forgets the directories.
func (im *Import) syncDirs(dirs map[string]bool) error {
	for dir := range dirs {
		if im.repo.config.fsync {
			if err := syncDir(dir); err != nil {
				return err
			}
		}
		delete(dirs, dir)
	}
	return nil
}

func syncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.Sync()
}

// closure walks from the commit to everything it is made of and returns those
// objects that are staged here.
func (im *Import) closure(ctx context.Context, commit Checksum) ([]ObjectName, error) {
	w := walk{im: im, seen: map[ObjectName]bool{}}
	root := ObjectName{commit, Commit}
	data, err := w.load(root)
	if err != nil {
		return nil, err
	}
	info, err := parseCommit(data)
	if err != nil {
		return nil, corrupt(root, "%v", err)
	}
	w.todo = []ObjectName{{info.RootTree, DirTree}, {info.RootMeta, DirMeta}}
	if meta := (ObjectName{commit, CommitMeta}); im.staged[meta] {
		w.todo = append(w.todo, meta)
	}
	for len(w.todo) > 0 {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		n := w.todo[len(w.todo)-1]
		w.todo = w.todo[:len(w.todo)-1]
		if err := w.visit(n); err != nil {
			return nil, err
		}
	}
	return w.staged, nil
}

// walk is a walk over a commit's objects.
type walk struct {
	im     *Import
	seen   map[ObjectName]bool
	todo   []ObjectName
	staged []ObjectName
}

func (w *walk) visit(n ObjectName) error {
	if w.seen[n] {
		return nil
	}
	if n.Type != DirTree {
		return w.require(n)
	}
	data, err := w.load(n)
	if err != nil {
		return err
	}
	children, err := parseDirTree(data)
	if err != nil {
		return corrupt(n, "%v", err)
	}
	w.todo = append(w.todo, children...)
	return nil
}

// require checks that an object is there.
func (w *walk) require(n ObjectName) error {
	w.seen[n] = true
	if w.im.staged[n] {
		w.staged = append(w.staged, n)
		return nil
	}
	have, err := w.im.repo.Has(n)
	if err == nil && !have {
		err = corrupt(n, "it is missing")
	}
	return err
}

// load reads a metadata object from this import or from the repository.
func (w *walk) load(n ObjectName) ([]byte, error) {
	if err := w.require(n); err != nil {
		return nil, err
	}
	path := w.im.repo.objectPath(n)
	if w.im.staged[n] {
		path = w.im.path(n)
	}
	return os.ReadFile(path)
}
