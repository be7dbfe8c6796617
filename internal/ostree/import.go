package ostree

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"machine-pivot/internal/guard"
	"machine-pivot/internal/selinux"
)

// Import brings commits into a repository: objects are added in any order and
// from any goroutine, each verified as it streams into a staging directory;
// Finish makes those that a commit is made of objects of the repository, all of
// them or none.
//
// It is safe beside a running libostree: the repository's lock is held shared
// until Close, so that nothing prunes what no ref protects yet.
type Import struct {
	repo     *Repo
	lock     *os.File
	staging  *staging
	flushing atomic.Bool
	flushes  sync.WaitGroup

	inflaters sync.Pool  // of *inflate.Decoder
	large     sync.Mutex // held by who has a large metadata object or header in memory

	finishing sync.Mutex          // held by Finish
	whole     map[ObjectName]bool // with all that they refer to, in the repository

	mu      sync.Mutex
	settled *sync.Cond // an object is not pending any more
	objects map[ObjectName]objectState
	adopted map[ObjectName]bool // staged by an interrupted import, not yet asked for
	stats   ImportStats
	room    int64            // bytes that may still be written
	flushAt int64            // of BytesWritten
	labels  map[string]error // those that were asked for: why they cannot be stored
}

// objectState is what an import knows of an object.
type objectState uint8

const (
	unknown objectState = iota
	pending             // it is being written
	staged              // whole and verified, in the staging directory
	present             // in the repository
)

// ImportStats counts what an import saw and did.
type ImportStats struct {
	ObjectsTotal int   // different objects that were added
	ObjectsNew   int   // of them, those that the repository lacked
	BytesWritten int64 // content and metadata of the new ones; without what an interrupted import had written
}

// Bounds.
const (
	// maxMetadata is how large a metadata object may be that an image brings, in
	// bytes. ostree-ext takes 10 MiB, libostree 128 MiB; a directory of 300,000
	// files has 16 MiB, and nothing else comes near.
	maxMetadata = 16 << 20
	// maxMade is libostree's bound, for the sets of objects that are made here.
	maxMade = 128 << 20
	// largeFrom is the size from which metadata is in memory one at a time, in bytes.
	largeFrom = 256 << 10
	// flushEvery is how many bytes are written before the disk is asked to begin
	// with them, so that it does not idle until all is to be synced.
	flushEvery = 256 << 20
)

// BeginImport starts an import. Close or Discard it in any case.
func (r *Repo) BeginImport(ctx context.Context) (_ *Import, err error) {
	im := &Import{
		repo: r, flushAt: flushEvery,
		objects: map[ObjectName]objectState{}, adopted: map[ObjectName]bool{}, whole: map[ObjectName]bool{},
		labels: map[string]error{},
	}
	im.settled = sync.NewCond(&im.mu)
	if im.lock, err = r.lockShared(ctx); err != nil {
		return nil, err
	}
	if err := im.begin(); err != nil {
		return nil, errors.Join(fmt.Errorf("cannot begin import: %w", err), im.Close())
	}
	return im, nil
}

func (im *Import) begin() (err error) {
	if im.room, err = im.repo.room(); err != nil {
		return err
	}
	if im.staging, err = openStaging(filepath.Join(im.repo.path, "tmp")); err != nil {
		return err
	}
	names, err := im.staging.whole()
	for _, n := range names {
		im.adopted[n] = true
	}
	return err
}

// Room is how many bytes an import may bring: what the file system has free, less
// the reserve that the repository's configuration demands, and what interrupted
// imports have left, which the next one goes on with or removes. Nothing is written.
func (r *Repo) Room() (int64, error) {
	free, err := r.room()
	if err != nil {
		return 0, fmt.Errorf("cannot tell how much room repository %s has: %w", r.path, err)
	}
	left, err := leftSize(filepath.Join(r.path, "tmp"))
	if err != nil {
		return 0, fmt.Errorf("cannot tell what interrupted imports have left: %w", err)
	}
	return max(free, 0) + left, nil
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

// claim notes an object; it reports whether the caller has to write it, and then
// to settle it.
func (im *Import) claim(n ObjectName) (bool, error) {
	im.mu.Lock()
	if im.objects[n] != unknown {
		im.mu.Unlock()
		return false, nil
	}
	im.stats.ObjectsTotal++
	im.objects[n] = pending
	if im.adopted[n] {
		im.objects[n] = staged
		delete(im.adopted, n)
		im.stats.ObjectsNew++
	}
	adopted := im.objects[n] == staged
	im.mu.Unlock()
	if adopted {
		return false, nil
	}
	have, err := im.repo.Has(n)
	if err != nil || have && n.Type != CommitMeta {
		im.settle(n, map[bool]objectState{true: present}[have])
		return false, err
	}
	return true, nil
}

// settle says how a claimed object ended: unknown if it could not be had.
func (im *Import) settle(n ObjectName, state objectState) {
	im.mu.Lock()
	defer im.mu.Unlock()
	im.objects[n] = state
	if state == staged {
		im.stats.ObjectsNew++
	}
	im.settled.Broadcast()
}

// forget takes back a staged object that has become another one.
func (im *Import) forget(n ObjectName) {
	im.mu.Lock()
	defer im.mu.Unlock()
	delete(im.objects, n)
	im.stats.ObjectsTotal--
	im.stats.ObjectsNew--
}

// state waits until an object is not pending.
func (im *Import) state(n ObjectName) objectState {
	im.mu.Lock()
	defer im.mu.Unlock()
	for im.objects[n] == pending {
		im.settled.Wait()
	}
	return im.objects[n]
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
	if im.stats.BytesWritten >= im.flushAt {
		im.flushAt = im.stats.BytesWritten + flushEvery
		im.flush()
	}
	return nil
}

// release gives back room that was taken for what turned out to be there.
func (im *Import) release(size uint64) {
	im.mu.Lock()
	defer im.mu.Unlock()
	im.room += int64(size)
	im.stats.BytesWritten -= int64(size)
}

// flush lets the disk begin with what was written. Its error is of no interest:
// what counts is synced again by Finish.
func (im *Import) flush() {
	if !im.repo.config.fsync || im.repo.config.perObjectFsync || !im.flushing.CompareAndSwap(false, true) {
		return
	}
	im.flushes.Add(1)
	guard.Start(func() error {
		defer im.flushes.Done()
		defer im.flushing.Store(false)
		return im.staging.sync()
	})
}

// add makes an object by a function that writes and verifies it, unless the object
// is there already. Whatever becomes of that, nobody waits for the object after it.
func (im *Import) add(n ObjectName, write func() (objectState, error)) (err error) {
	if wanted, err := im.claim(n); err != nil || !wanted {
		return err
	}
	state := unknown
	defer func() { // also if it panics
		if state == unknown {
			err = errors.Join(err, im.staging.drop(n))
		}
		im.settle(n, state)
	}()
	reached, err := write()
	if err == nil {
		state = reached
	}
	return err
}

// oneLarge waits until nobody else has large metadata in memory, if this is large:
// of size bytes, or -1 for an unknown size. The result ends that.
func (im *Import) oneLarge(size int64) (done func()) {
	if size >= 0 && size < largeFrom {
		return func() {}
	}
	im.large.Lock()
	return im.large.Unlock
}

// AddMetadata adds a commit, dirtree, dirmeta or commitmeta object. The content
// must have the checksum and structure that the name says, else the error is a
// CorruptError. A body whose size can be told (*bytes.Reader, *io.LimitedReader)
// takes less memory.
func (im *Import) AddMetadata(ctx context.Context, n ObjectName, body io.Reader) error {
	return im.add(n, func() (objectState, error) {
		size := sizeOf(body)
		defer im.oneLarge(size)()
		data, err := readMetadata(n, body, size)
		if err != nil {
			return unknown, err
		}
		if n.Type == CommitMeta && im.repo.holds(n, data) { // of others the name says so
			return present, nil
		}
		if n.Type == DirMeta {
			if err := im.checkDirLabel(n, data); err != nil {
				return unknown, err
			}
		}
		return staged, im.writeMetadata(n, data)
	})
}

// writeMetadata writes a metadata object that was verified.
func (im *Import) writeMetadata(n ObjectName, data []byte) error {
	if err := im.reserve(uint64(len(data))); err != nil {
		return err
	}
	f, err := im.staging.create(n, 0o644)
	if err != nil {
		return fmt.Errorf("cannot write object: %w", err)
	}
	_, err = f.Write(data)
	if err := errors.Join(err, f.Chmod(0o644), selinux.Inherit(im.staging.path(n)), im.durable(f), f.Close()); err != nil {
		return fmt.Errorf("cannot write object %s: %w", n, err)
	}
	return nil
}

// holds reports whether the repository has an object with just this content.
func (r *Repo) holds(n ObjectName, data []byte) bool {
	have, err := os.ReadFile(r.objectPath(n))
	return err == nil && bytes.Equal(have, data)
}

// sizeOf is how many bytes a stream has at most, or -1 if it does not say.
func sizeOf(body io.Reader) int64 {
	switch r := body.(type) {
	case *bytes.Reader:
		return int64(r.Len())
	case *io.LimitedReader:
		return r.N
	}
	return -1
}

// readMetadata reads and verifies a metadata object of at most size bytes, if that
// is not -1.
func readMetadata(n ObjectName, body io.Reader, size int64) ([]byte, error) {
	if size > maxMetadata {
		return nil, corrupt(n, "it has %d bytes, more than %d", size, maxMetadata)
	}
	var b bytes.Buffer
	if size >= 0 {
		b.Grow(int(size) + bytes.MinRead) // ReadFrom wants room when it looks for the end
	}
	if _, err := b.ReadFrom(io.LimitReader(body, maxMetadata+1)); err != nil {
		return nil, fmt.Errorf("cannot read object %s: %w", n, err)
	}
	data := b.Bytes()
	if len(data) > maxMetadata {
		return nil, corrupt(n, "it is larger than %d bytes", maxMetadata)
	}
	if got := Checksum(sha256.Sum256(data)); got != n.Checksum && n.Type != CommitMeta {
		return nil, corrupt(n, "its content has the checksum %s", got)
	}
	if err := checkMetadata(n.Type, data); err != nil {
		return nil, corrupt(n, "%v", err)
	}
	return data, nil
}

// durable syncs a written file, if the repository wants that of each object.
func (im *Import) durable(f *os.File) error {
	if im.repo.config.perObjectFsync {
		return f.Sync()
	}
	return nil
}

// Close ends the import and releases the lock. What was added and is whole, but
// was not finished, is kept aside: the next import of this boot goes on with it.
func (im *Import) Close() error { return im.end(true) }

// Discard ends the import and removes what was added and not finished.
func (im *Import) Discard() error { return im.end(false) }

func (im *Import) end(keep bool) error {
	var err error
	im.flushes.Wait()
	if im.staging != nil {
		err = im.staging.close(keep)
		im.staging = nil
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
