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
)

// Import writes commits into a repository. Objects are added in any order and by any
// goroutine. Each is verified while it streams into a staging directory. Finish then
// publishes a commit with all objects that it is made of, or nothing.
//
// It may run beside libostree: the repository's lock is held shared until Close or
// Discard, so that nobody prunes objects that no ref protects yet.
type Import struct {
	repo     *Repo
	lock     *os.File
	staging  *staging
	flushing atomic.Bool
	flushes  sync.WaitGroup

	recent    recent
	inflaters sync.Pool  // of *inflate.Decoder
	large     sync.Mutex // held by the goroutine that has a large metadata object or header in memory

	finishing sync.Mutex          // held by Finish
	whole     map[ObjectName]bool // published, with all that they refer to
	expanded  map[Checksum]int    // what is below directories: see walk

	mu           sync.Mutex
	stateChanged *sync.Cond // signals that an object is not beingWritten any more
	objects      map[ObjectName]objectState
	adopted      map[ObjectName]bool // staged by an interrupted import, and not added by this one yet
	stats        ImportStats
	room         int64            // bytes that may still be written
	flushAt      int64            // flush when so many bytes are written
	labels       map[string]error // results of CheckLabels' function, by label
}

// objectState is where an object of an import is.
type objectState uint8

const (
	absent       objectState = iota
	beingWritten             // into the staging directory
	isStaged                 // whole and verified in the staging directory
	inRepo                   // in the repository
)

// ImportStats counts objects and bytes of an import.
type ImportStats struct {
	ObjectsTotal int   // different objects that were added
	ObjectsNew   int   // of these, how many the repository lacked
	BytesWritten int64 // contents and metadata objects written by this import
}

// Bounds.
const (
	// maxMetadata bounds a metadata object of an image, in bytes. ostree-ext takes 10 MiB
	// and libostree 128 MiB. A directory of some 370,000 files with short names has 16 MiB;
	// no other object comes near.
	maxMetadata = 16 << 20
	// maxMade bounds a metadata object that this program makes. It is libostree's bound.
	maxMade = 128 << 20
	// largeFrom is the size from which only one metadata object is in memory at a time, in
	// bytes.
	largeFrom = 256 << 10
	// flushEvery is after how many written bytes the kernel is asked to write them to the
	// disk, so that the disk does not idle until the final sync.
	flushEvery = 256 << 20
)

// BeginImport starts an import, which must be ended with Close or Discard.
func (r *Repo) BeginImport(ctx context.Context) (_ *Import, err error) {
	im := &Import{
		repo: r, flushAt: flushEvery,
		objects: map[ObjectName]objectState{}, adopted: map[ObjectName]bool{}, whole: map[ObjectName]bool{}, expanded: map[Checksum]int{},
		labels: map[string]error{},
	}
	im.stateChanged = sync.NewCond(&im.mu)
	if im.lock, err = r.lockShared(ctx); err != nil {
		return nil, err
	}
	if err := im.begin(); err != nil {
		return nil, errors.Join(fmt.Errorf("cannot begin import: %w", err), im.Close())
	}
	return im, nil
}

func (im *Import) begin() (err error) {
	if im.room, err = im.repo.freeAboveReserve(); err != nil {
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

// Room is how many bytes an import may write: the free space, less the reserve that the
// repository's configuration demands, plus what interrupted imports have left, which the
// next import uses or removes. Nothing is written.
func (r *Repo) Room() (int64, error) {
	free, err := r.freeAboveReserve()
	if err != nil {
		return 0, fmt.Errorf("cannot tell how much room repository %s has: %w", r.path, err)
	}
	left, err := leftSize(filepath.Join(r.path, "tmp"))
	if err != nil {
		return 0, fmt.Errorf("cannot tell what interrupted imports have left: %w", err)
	}
	return max(free, 0) + left, nil
}

// freeAboveReserve is how many bytes may be written without using the repository's reserve.
func (r *Repo) freeAboveReserve() (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(r.path, &st); err != nil {
		return 0, err
	}
	block := uint64(st.Bsize)
	reserve := max(r.config.minFreeBytes, st.Blocks/100*r.config.minFreePercent*block)
	return int64(st.Bavail*block) - int64(reserve), nil
}

// Stats are the counts so far.
func (im *Import) Stats() ImportStats {
	im.mu.Lock()
	defer im.mu.Unlock()
	return im.stats
}

// claim registers an object that is to be added. It reports whether the caller must write
// it, and then set its state.
func (im *Import) claim(n ObjectName) (bool, error) {
	im.mu.Lock()
	if im.objects[n] != absent {
		im.mu.Unlock()
		return false, nil
	}
	im.stats.ObjectsTotal++
	im.objects[n] = beingWritten
	if im.adopted[n] {
		im.objects[n] = isStaged
		delete(im.adopted, n)
		im.stats.ObjectsNew++
	}
	adopted := im.objects[n] == isStaged
	im.mu.Unlock()
	if adopted {
		return false, nil
	}
	have, err := im.repo.Has(n)
	if err != nil || have && n.Type != CommitMeta {
		im.setState(n, map[bool]objectState{true: inRepo}[have])
		return false, err
	}
	return true, nil
}

// setState sets the state of a claimed object: absent if it could not be written.
func (im *Import) setState(n ObjectName, state objectState) {
	im.mu.Lock()
	defer im.mu.Unlock()
	im.objects[n] = state
	if state == isStaged {
		im.stats.ObjectsNew++
	}
	im.stateChanged.Broadcast()
}

// forget removes a staged object that has been turned into another one.
func (im *Import) forget(n ObjectName) {
	im.mu.Lock()
	defer im.mu.Unlock()
	delete(im.objects, n)
	im.stats.ObjectsTotal--
	im.stats.ObjectsNew--
}

// state is the state of an object, when it is not being written any more.
func (im *Import) state(n ObjectName) objectState {
	im.mu.Lock()
	defer im.mu.Unlock()
	for im.objects[n] == beingWritten {
		im.stateChanged.Wait()
	}
	return im.objects[n]
}

// reserve reserves room for size bytes.
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

// release gives back the room for an object that was there already.
func (im *Import) release(size uint64) {
	im.mu.Lock()
	defer im.mu.Unlock()
	im.room += int64(size)
	im.stats.BytesWritten -= int64(size)
}

// flush starts writing to the disk. Its errors are ignored, since Finish syncs again.
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

// add calls write to write and verify an object, unless the object is there already. write
// returns the state that the object has reached. The state is set in any case, also if
// write panics: other goroutines may wait for it.
func (im *Import) add(n ObjectName, write func() (objectState, error)) (err error) {
	if wanted, err := im.claim(n); err != nil || !wanted {
		return err
	}
	state := absent
	defer func() { // also if it panics
		if state == absent {
			err = errors.Join(err, im.staging.drop(n))
		}
		im.setState(n, state)
	}()
	reached, err := write()
	if err == nil {
		state = reached
	}
	return err
}

// oneLarge waits, before large metadata are read into memory, until no other goroutine
// has some there; done ends the use. size is in bytes, or -1 if it is not known.
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
// takes less memory: it is read into a buffer of that size.
func (im *Import) AddMetadata(ctx context.Context, n ObjectName, body io.Reader) error {
	return im.add(n, func() (objectState, error) {
		size := sizeOf(body)
		defer im.oneLarge(size)()
		data, err := readMetadata(n, body, size)
		if err != nil {
			return absent, err
		}
		if n.Type == CommitMeta && im.repo.holds(n, data) { // others are equal if their names are
			return inRepo, nil
		}
		if n.Type == DirMeta {
			if err := im.checkDirLabel(n, data); err != nil {
				return absent, err
			}
		}
		return isStaged, im.writeMetadata(n, data)
	})
}

// writeMetadata writes a verified metadata object.
func (im *Import) writeMetadata(n ObjectName, data []byte) error {
	if err := im.reserve(uint64(len(data))); err != nil {
		return err
	}
	f, err := im.staging.create(n, 0o644)
	if err != nil {
		return fmt.Errorf("cannot write object: %w", err)
	}
	_, err = f.Write(data)
	if err := errors.Join(err, f.Chmod(0o644), im.staging.inherit(n), im.durable(f), f.Close()); err != nil {
		return fmt.Errorf("cannot write object %s: %w", n, err)
	}
	return nil
}

// holds reports whether the repository has an object with exactly this content.
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

// readMetadata reads and verifies a metadata object. It has at most size bytes, unless that
// is -1.
func readMetadata(n ObjectName, body io.Reader, size int64) ([]byte, error) {
	if size > maxMetadata {
		return nil, corrupt(n, "it has %d bytes, more than %d", size, maxMetadata)
	}
	var b bytes.Buffer
	if size >= 0 {
		b.Grow(int(size) + bytes.MinRead) // else ReadFrom doubles the buffer to find the end
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

// durable syncs a written file, if the repository is configured to sync each object.
func (im *Import) durable(f *os.File) error {
	if im.repo.config.perObjectFsync {
		return f.Sync()
	}
	return nil
}

// Close ends the import and releases the lock. Objects that are whole but not published
// stay in the staging directory, where the next import of this boot finds them.
func (im *Import) Close() error { return im.end(true) }

// Discard ends the import, removes objects that are not published, and releases the lock.
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
