package ostree

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"machine-pivot/internal/guard"
	"machine-pivot/internal/hostfiles"
)

// Root is a commit that an import publishes, and the refs that will point to it.
type Root struct {
	Commit Checksum
	Refs   []string
}

// Finish publishes commits and sets their refs. All objects that the commits refer to must
// exist, in this import or in the repository. If one is missing, the error names it and no
// ref is set. Finish may be called several times, also while objects are being added. It
// needs at least one root. The roots of one call are synced together.
//
// In a repository that wants it, all these objects have fs-verity first (see seal).
//
// As in libostree, objects are made durable under temporary names and renamed, then the
// directories are synced, and then the refs are set. The refs of the last root are set after
// those of the others are durable. So after a kill or a power cut every ref leads to a
// complete commit. libostree marks commits as partial in the meantime, because it writes
// them first. Here commits are published last and need no mark, which could outlive the
// process and make a complete commit look incomplete.
func (im *Import) Finish(ctx context.Context, roots ...Root) error {
	im.finishing.Lock()
	defer im.finishing.Unlock()
	if err := im.finishRoots(ctx, roots); err != nil {
		return fmt.Errorf("cannot finish import of commit %s: %w", roots[0].Commit, err)
	}
	return nil
}

func (im *Import) finishRoots(ctx context.Context, roots []Root) (err error) {
	im.flushLast()
	w := im.newWalk()
	for _, root := range roots {
		if err := w.commit(ctx, root.Commit); err != nil {
			return err
		}
	}
	if err := im.seal(ctx, w.seen); err != nil {
		return err
	}
	refs, err := im.repo.writeRefs(roots)
	defer func() { err = errors.Join(err, refs.drop()) }()
	if err == nil {
		err = im.syncAndPublish(w.staged, refs)
	}
	if err == nil {
		err = im.repo.clearMarks(roots)
	}
	if err != nil {
		return err
	}
	last := len(refs) - len(roots[len(roots)-1].Refs)
	for _, some := range []newRefs{refs[:last], refs[last:]} {
		if err := im.repo.placeRefs(some); err != nil {
			return err
		}
	}
	if len(im.whole) == 0 { // most imports finish once, and then a copy would be garbage
		im.whole = w.seen
	} else {
		maps.Copy(im.whole, w.seen)
	}
	// Other programs notice new refs by the modification time of the repository.
	now := time.Now()
	return os.Chtimes(im.repo.path, now, now)
}

// clearMarks removes the commitpartial marks that an interrupted pull by another program has
// left, or ostree fsck --delete, which has removed wrong objects: the commits are now complete.
func (r *Repo) clearMarks(roots []Root) error {
	marked := map[string]bool{} // directories from which a mark was removed
	for _, root := range roots {
		mark := r.partialPath(root.Commit)
		err := os.Remove(mark)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		marked[filepath.Dir(mark)] = true
	}
	return r.syncDirs(marked)
}

// sync makes the staged objects and the ref files durable. One sync of the file system does
// it, unless each of them was synced when it was written, or none is staged: then only the ref files are
// synced. What an interrupted import has left may not be synced, whatever the configuration was then, and
// an object with another label is not.
func (im *Import) sync(staged []ObjectName, refs newRefs) error {
	im.mu.Lock()
	each := im.repo.config.perObjectFsync && !im.unsynced
	im.mu.Unlock()
	if len(staged) == 0 || each {
		return im.repo.syncRefs(refs)
	}
	return im.syncAll()
}

// syncAndPublish makes staged objects and the ref files durable, and renames the objects into the
// repository. Files that are durable already are renamed while the others are synced: they exist
// before anything refers to them.
func (im *Import) syncAndPublish(staged []ObjectName, refs newRefs) error {
	root, err := os.Open(filepath.Join(im.repo.path, "objects"))
	if err != nil {
		return err
	}
	defer root.Close()
	durable, others := im.byDurability(staged)
	synced := guard.Start(func() error { return im.sync(others, refs) })
	touched := map[string]bool{root.Name(): true}
	err = im.publish(root, durable, touched)
	if failed := <-synced; failed != nil {
		err = failed
	}
	if err != nil {
		return err
	}
	if err := im.publish(root, others, touched); err != nil {
		return err
	}
	return im.repo.syncDirs(touched)
}

// publish renames staged objects into the repository's directory of objects: files first, commits
// last, so that no object refers to one that does not exist yet. Objects are sorted by directory, so
// that the file system writes each directory to its journal once. One goroutine does all renames,
// because the kernel serializes renames between directories. touched has the directories that must be
// synced before metadata are renamed, and in the end.
func (im *Import) publish(root *os.File, objects []ObjectName, touched map[string]bool) error {
	slices.SortFunc(objects, func(a, b ObjectName) int {
		return cmp.Or(rank(a.Type)-rank(b.Type), bytes.Compare(a.Checksum[:], b.Checksum[:]))
	})
	last := ObjectName{Type: File}
	for i, n := range objects {
		next := rank(n.Type) != rank(last.Type)
		if next {
			if err := im.repo.syncDirs(touched); err != nil {
				return err
			}
		}
		if i == 0 || next || n.Checksum[0] != last.Checksum[0] {
			if err := makeShard(root.Name(), n, touched); err != nil {
				return err
			}
		}
		if err := im.place(n, int(root.Fd())); err != nil {
			return err
		}
		last = n
	}
	return nil
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

// makeShard creates the directory of an object if it is missing, and adds the directories that
// must be synced to touched.
func makeShard(root string, n ObjectName, touched map[string]bool) error {
	dir := filepath.Dir(filepath.Join(root, n.path()))
	err := os.Mkdir(dir, 0o755)
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	touched[dir] = true
	if err != nil {
		return nil
	}
	touched[root] = true
	return hostfiles.InheritLabel(dir)
}

// place renames one object to its path in the repository. If there is one already, which another program has written
// meanwhile, it is kept if it is right, because deployments may have links to it. A wrong one is replaced, and so is
// detached metadata, which is not content addressed.
func (im *Import) place(n ObjectName, objects int) error {
	path := n.path()
	flags := uint(unix.RENAME_NOREPLACE)
	if n.Type == CommitMeta {
		flags = 0
	}
	err := unix.Renameat2(im.staging.fd(), path, objects, path, flags)
	if errors.Is(err, unix.EEXIST) {
		err = nil
		if !im.repo.verifies(n) {
			im.replaces(n)
			err = unix.Renameat(im.staging.fd(), path, objects, path)
		}
	}
	if errors.Is(err, unix.EISDIR) || errors.Is(err, unix.EPERM) { // a directory, an immutable file
		return damaged(n, im.repo.objectPath(n))
	}
	if err != nil {
		return fmt.Errorf("cannot place object %s: %w", n, err)
	}
	im.setState(n, inRepo)
	return nil
}

// replaces notes that a wrong object of the repository is replaced.
func (im *Import) replaces(n ObjectName) {
	im.mu.Lock()
	defer im.mu.Unlock()
	im.stats.Replaced = append(im.stats.Replaced, n)
}

// syncDirs syncs directories and removes them from the map.
func (r *Repo) syncDirs(dirs map[string]bool) error {
	for dir := range dirs {
		if r.config.fsync {
			if err := syncFile(dir); err != nil {
				return err
			}
		}
		delete(dirs, dir)
	}
	return nil
}

// syncFile syncs a file or directory.
func syncFile(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}
