package ostree

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"
)

// Import brings one commit into a repository: objects are added in any order and
// from any goroutine, each verified as it streams into a place of the import's
// own; Finish makes all of them objects of the repository, or none.
//
// It is safe beside a running libostree: the repository's lock is held shared
// until Close, so that nothing prunes what no ref protects yet.
type Import struct {
	repo *Repo
	dir  string // below the repository's tmp/; not "staging-…", which libostree would adopt
	lock *os.File

	mu     sync.Mutex
	staged map[ObjectName]bool // seen; true: complete in dir
	stats  ImportStats
	room   int64 // bytes that may still be written
}

// ImportStats counts what an import saw and did.
type ImportStats struct {
	ObjectsTotal int   // different objects that were added
	ObjectsNew   int   // of them, those that the repository lacked
	BytesWritten int64 // content and metadata of the new ones
}

// maxMetadata is libostree's bound of a metadata object, in bytes.
const maxMetadata = 128 << 20

// BeginImport starts an import. Close it in any case.
func (r *Repo) BeginImport(ctx context.Context) (_ *Import, err error) {
	im := &Import{repo: r, staged: map[ObjectName]bool{}}
	if im.lock, err = r.lockShared(ctx); err != nil {
		return nil, err
	}
	if im.room, err = r.room(); err == nil {
		im.dir, err = os.MkdirTemp(filepath.Join(r.path, "tmp"), "pivot-import-*")
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("cannot begin import: %w", err), im.Close())
	}
	return im, nil
}

// room is how many bytes may be written before the repository's reserve is touched.
func (r *Repo) room() (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(r.path, &st); err != nil {
		return 0, err
	}
	block := uint64(st.Bsize)
	reserve := max(r.config.minFreeBytes, st.Blocks/100*r.config.minFreePercent*block)
	return int64(st.Bavail*block) - int64(reserve), nil
}

// Stats tells what was done so far.
func (im *Import) Stats() ImportStats {
	im.mu.Lock()
	defer im.mu.Unlock()
	return im.stats
}

// claim notes an object; it reports whether the caller has to write it.
func (im *Import) claim(n ObjectName) (bool, error) {
	im.mu.Lock()
	defer im.mu.Unlock()
	if _, seen := im.staged[n]; seen {
		return false, nil
	}
	im.staged[n] = false
	im.stats.ObjectsTotal++
	have, err := im.repo.Has(n)
	if err != nil || have && n.Type != CommitMeta {
		return false, err
	}
	im.stats.ObjectsNew++
	return true, nil
}

// reserve takes room for size bytes.
func (im *Import) reserve(size uint64) error {
	im.mu.Lock()
	defer im.mu.Unlock()
	if size > uint64(max(im.room, 0)) {
		return fmt.Errorf("cannot write object of %d bytes: the repository's reserve leaves %d: %w", size, max(im.room, 0), unix.ENOSPC)
	}
	im.room -= int64(size)
	im.stats.BytesWritten += int64(size)
	return nil
}

func (im *Import) done(n ObjectName) {
	im.mu.Lock()
	defer im.mu.Unlock()
	im.staged[n] = true
}

// path is where an object is until Finish.
func (im *Import) path(n ObjectName) string { return filepath.Join(im.dir, n.String()) }

// AddMetadata adds a commit, dirtree, dirmeta or commitmeta object. The content
// must have the checksum and structure that the name says, else the error is a
// CorruptError.
func (im *Import) AddMetadata(ctx context.Context, n ObjectName, body io.Reader) error {
	if wanted, err := im.claim(n); err != nil || !wanted {
		return err
	}
	data, err := io.ReadAll(io.LimitReader(body, maxMetadata+1))
	if err != nil {
		return fmt.Errorf("cannot read object %s: %w", n, err)
	}
	if len(data) > maxMetadata {
		return corrupt(n, "it is larger than %d bytes", maxMetadata)
	}
	if got := Checksum(sha256.Sum256(data)); got != n.Checksum && n.Type != CommitMeta {
		return corrupt(n, "its content has the checksum %s", got)
	}
	if err := checkMetadata(n.Type, data); err != nil {
		return corrupt(n, "%v", err)
	}
	if err := im.reserve(uint64(len(data))); err != nil {
		return err
	}
	f, err := os.OpenFile(im.path(n), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return fmt.Errorf("cannot write object: %w", err)
	}
	_, err = f.Write(data)
	if err := errors.Join(err, im.settle(f), f.Close()); err != nil {
		return fmt.Errorf("cannot write object %s: %w", n, err)
	}
	im.done(n)
	return nil
}

// settle makes a written file durable, if the repository wants that of each object.
func (im *Import) settle(f *os.File) error {
	if im.repo.config.perObjectFsync {
		return f.Sync()
	}
	return nil
}

// Close ends the import: what Finish has not made part of the repository is
// discarded, and the lock is released.
func (im *Import) Close() error {
	var err error
	if im.dir != "" {
		err = os.RemoveAll(im.dir)
		im.dir = ""
	}
	if im.lock != nil {
		err = errors.Join(err, im.lock.Close())
		im.lock = nil
	}
	if err != nil {
		return fmt.Errorf("cannot end import: %w", err)
	}
	return nil
}
