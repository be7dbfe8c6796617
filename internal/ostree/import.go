package ostree

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"machine-pivot/internal/guard"
)

// Import writes commits into a repository. Objects may be added in any order and by any
// goroutine. Each is verified while it is streamed into a staging directory. Finish then
// publishes a commit with all objects that it refers to, or nothing.
//
// An import may run alongside libostree: it holds the repository's lock in shared mode until
// Close or Discard, so that no other program prunes objects that no ref protects yet.
type Import struct {
	Objects
	repo    *Repo
	lock    *os.File
	staging *staging
	verity  bool // objects get fs-verity: see seal
	flusher flusher

	recent    recent
	headers   headerCache
	inflaters sync.Pool  // of *inflate.Decoder
	large     sync.Mutex // held by the goroutine that has a large metadata object or header in memory

	finishing sync.Mutex          // held by Finish
	whole     map[ObjectName]bool // objects published with all that they refer to
	expanded  map[Checksum]int    // see walk.expanded

	mu           sync.Mutex
	stateChanged *sync.Cond // signals that an object is no longer beingWritten
	objects      map[ObjectName]object
	relabelling  bool                // the objects of files are given other labels: no more are read
	adopted      map[ObjectName]bool // staged by an interrupted import, not yet added by this one
	unsynced     bool                // objects are staged that were not synced one by one: see sync
	stats        ImportStats
	room         int64            // bytes that may still be written
	flushAt      int64            // value of stats.BytesWritten at which to flush next
	labels       map[string]error // results of label checks, by label
}

// objectState is the state of an object of an import.
type objectState uint8

const (
	absent       objectState = iota
	beingWritten             // into the staging directory
	isStaged                 // complete and verified in the staging directory
	inRepo                   // in the repository
)

// object is what an import knows about an object.
type object struct {
	state objectState
	again bool  // another object has become this one by its new label
	epoch epoch // in which it was staged
}

// ImportStats counts objects and bytes of an import.
type ImportStats struct {
	ObjectsTotal int   // distinct objects that were added
	ObjectsNew   int   // how many of these the repository did not have
	BytesWritten int64 // contents and metadata objects written by this import

	Replaced []ObjectName // wrong objects of the repository that right ones have replaced
}

// Limits.
const (
	// maxMetadata is the maximum size of a metadata object of an image, in bytes. ostree-ext
	// accepts 10 MiB and libostree 128 MiB. A DirTree of about 370,000 files with short names
	// has 16 MiB; no other object comes close.
	maxMetadata = 16 << 20
	// maxMade is the maximum size of a metadata object made by this program, in bytes. It is
	// libostree's limit.
	maxMade = 128 << 20
	// largeFrom is the size, in bytes, from which only one metadata object at a time is held
	// in memory.
	largeFrom = 256 << 10
	// flushEvery is the number of written bytes after which they are flushed to the disk, so
	// that the disk is not idle until the final sync.
	flushEvery = 128 << 20
)

// BeginImport starts an import. The caller must end it with Close or Discard.
func (r *Repo) BeginImport(ctx context.Context) (_ *Import, err error) {
	im := &Import{
		repo: r, flushAt: flushEvery,
		objects: map[ObjectName]object{}, adopted: map[ObjectName]bool{}, whole: map[ObjectName]bool{}, expanded: map[Checksum]int{},
		labels: map[string]error{}, flusher: flusher{now: 1},
	}
	im.Objects, im.stateChanged = im.objectPath, sync.NewCond(&im.mu)
	if im.lock, err = r.lockShared(ctx); err != nil {
		return nil, err
	}
	if err := im.begin(); err != nil {
		return nil, errors.Join(fmt.Errorf("cannot begin import: %w", err), im.Close())
	}
	return im, nil
}

func (im *Import) begin() (err error) {
	if im.verity, err = im.repo.GivesVerity(); err != nil {
		return err
	}
	if im.staging, err = openStaging(filepath.Join(im.repo.path, "tmp")); err != nil {
		return err
	}
	names, err := im.staging.whole()
	for _, n := range names {
		im.adopted[n] = true
	}
	if err == nil { // after whole, which has removed the temporary files of an interrupted import
		im.staging.fresh, err = im.staging.lookAtNew()
	}
	if err == nil { // last: what is removed above is room, as Room has said
		im.room, err = im.repo.freeAboveReserve()
	}
	return err
}

// Room returns how many bytes an import may write: the free space without the configured reserve, and the files of
// interrupted imports, which the next import uses or removes. What a running import has written is not free. Room
// writes nothing.
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

// freeAboveReserve returns how many bytes may be written without using the repository's
// reserve. It is negative if the reserve is already in use.
func (r *Repo) freeAboveReserve() (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(r.path, &st); err != nil {
		return 0, err
	}
	block := uint64(st.Bsize)
	reserve := max(r.config.minFreeBytes, st.Blocks/100*r.config.minFreePercent*block)
	return int64(st.Bavail*block) - int64(min(reserve, math.MaxInt64)), nil
}

// Stats returns the counts so far.
func (im *Import) Stats() ImportStats {
	im.mu.Lock()
	defer im.mu.Unlock()
	stats := im.stats
	stats.Replaced = slices.Clone(stats.Replaced)
	return stats
}

// claim registers an object to be added. It reports whether the caller must write the object
// and then set its state. have reports whether the repository has it.
func (im *Import) claim(n ObjectName, have func() (bool, error)) (bool, error) {
	im.mu.Lock()
	for im.relabelling && im.objects[n].state == beingWritten { // or moved away
		im.stateChanged.Wait()
	}
	if o := im.objects[n]; o.state != absent {
		o.again = im.relabelling
		im.objects[n] = o
		im.mu.Unlock()
		return false, nil
	}
	im.stats.ObjectsTotal++
	adopted := im.adopted[n]
	im.objects[n] = object{state: beingWritten}
	if adopted {
		im.objects[n] = object{state: isStaged, epoch: im.flusher.now}
		delete(im.adopted, n)
		im.unsynced = true
		im.stats.ObjectsNew++
	}
	im.mu.Unlock()
	if adopted {
		return false, nil
	}
	there, err := have()
	if err != nil || there {
		im.setState(n, map[bool]objectState{true: inRepo}[there])
		return false, err
	}
	return true, nil
}

// metadata returns the function that reports whether the repository has a metadata object. Detached metadata are not
// named by their content: AddMetadata compares them.
func (im *Import) metadata(n ObjectName) func() (bool, error) {
	return func() (bool, error) {
		have, err := im.repo.Has(n)
		return have && n.Type != CommitMeta && im.repo.verifies(n), err
	}
}

// file returns the function that reports whether the repository has the file object with a header.
func (im *Import) file(n ObjectName, h *fileHeader) func() (bool, error) {
	return func() (bool, error) { return im.fits(n, h) }
}

// setState sets the state of a claimed object: absent if it could not be written.
func (im *Import) setState(n ObjectName, state objectState) {
	im.mu.Lock()
	defer im.mu.Unlock()
	im.objects[n] = object{state: state, epoch: im.flusher.now}
	if state == isStaged {
		im.stats.ObjectsNew++
	}
	im.stateChanged.Broadcast()
}

// give reports whether a staged object may be changed into another one, which is so if no other object
// has become this one. Until the caller calls given, one that would become it waits.
func (im *Import) give(n ObjectName) bool {
	im.mu.Lock()
	defer im.mu.Unlock()
	o := im.objects[n]
	if o.state != isStaged || o.again {
		return false
	}
	o.state = beingWritten
	im.objects[n] = o
	im.unsynced = true
	return true
}

// given ends the change of a staged object into another one, after which it does not exist. If the change
// has failed, the object's file is damaged; the import fails, and does not use it.
func (im *Import) given(n ObjectName) {
	im.mu.Lock()
	defer im.mu.Unlock()
	delete(im.objects, n)
	im.stats.ObjectsTotal--
	im.stats.ObjectsNew--
	im.stateChanged.Broadcast()
}

// state returns the state of an object. If it is being written, state waits until it is not.
func (im *Import) state(n ObjectName) objectState {
	im.mu.Lock()
	defer im.mu.Unlock()
	for im.objects[n].state == beingWritten {
		im.stateChanged.Wait()
	}
	return im.objects[n].state
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
		im.flush()
	}
	return nil
}

// release gives back room that was reserved for an object but not used.
func (im *Import) release(size uint64) {
	im.mu.Lock()
	defer im.mu.Unlock()
	im.room += int64(size)
	im.stats.BytesWritten -= int64(size)
}

// releaseIf gives back room that was reserved for an object if writing it has failed.
func (im *Import) releaseIf(failed *error, size uint64) {
	if *failed != nil {
		im.release(size)
	}
}

// add calls write to write and verify an object, unless the object exists already, in this import or, as have says,
// in the repository. write
// returns the new state of the object. add sets the state even if write panics, since other
// goroutines may be waiting for it.
func (im *Import) add(n ObjectName, have func() (bool, error), write func() (objectState, error)) (err error) {
	if wanted, err := im.claim(n, have); err != nil || !wanted {
		return err
	}
	state := absent
	defer func() { // even if write panics
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

// oneLarge limits large metadata in memory to one goroutine at a time: it waits for its turn,
// and done ends the turn. size is in bytes, or -1 if it is unknown. Small metadata do not
// wait.
func (im *Import) oneLarge(size int64) (done func()) {
	if size >= 0 && size < largeFrom {
		return func() {}
	}
	im.large.Lock()
	return im.large.Unlock
}

// AddMetadata adds a commit, dirtree, dirmeta or commitmeta object. If the content does
// not match the checksum and type in the name, the error is a CorruptError. A body of
// known size (*bytes.Reader, *io.LimitedReader) takes less memory: it is read into a
// buffer of that size.
func (im *Import) AddMetadata(ctx context.Context, n ObjectName, body io.Reader) error {
	return im.add(n, im.metadata(n), func() (objectState, error) {
		size := sizeOf(body)
		defer im.oneLarge(size)()
		data, err := readMetadata(n, body, size)
		if err != nil {
			return absent, err
		}
		if n.Type == CommitMeta && im.repo.holds(n, data) { // other types are equal if their names are
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

// metadataMode is the mode of metadata objects.
const metadataMode = 0o644

// writeMetadata writes a verified metadata object.
func (im *Import) writeMetadata(n ObjectName, data []byte) (err error) {
	if err := im.reserve(uint64(len(data))); err != nil {
		return err
	}
	defer im.releaseIf(&err, uint64(len(data)))
	f, err := im.staging.create(n, metadataMode)
	if err != nil {
		return fmt.Errorf("cannot write object: %w", err)
	}
	_, err = f.Write(data)
	if err := errors.Join(err, im.staging.fresh.setMode(f, metadataMode), im.staging.inherit(n), im.durable(f), f.Close()); err != nil {
		return fmt.Errorf("cannot write object %s: %w", n, err)
	}
	return nil
}

// holds reports whether the repository has an object with exactly this content.
func (r *Repo) holds(n ObjectName, data []byte) bool {
	have, err := readRegular(r.objectPath(n), maxMade)
	return err == nil && bytes.Equal(have, data)
}

// sizeOf returns the maximum size of a stream in bytes, or -1 if it is unknown.
func sizeOf(body io.Reader) int64 {
	switch r := body.(type) {
	case *bytes.Reader:
		return int64(r.Len())
	case *io.LimitedReader:
		return r.N
	}
	return -1
}

// readMetadata reads and verifies a metadata object. size is its maximum size in bytes, or -1
// if it is unknown.
func readMetadata(n ObjectName, body io.Reader, size int64) ([]byte, error) {
	if size > maxMetadata {
		return nil, corrupt(n, "%w", guard.TooMuch("it has %d bytes, more than %d", size, maxMetadata))
	}
	var b bytes.Buffer
	if size >= 0 {
		b.Grow(int(size) + bytes.MinRead) // otherwise ReadFrom doubles the buffer to find the end
	}
	if _, err := b.ReadFrom(io.LimitReader(body, maxMetadata+1)); err != nil {
		return nil, fmt.Errorf("cannot read object %s: %w", n, err)
	}
	data := b.Bytes()
	if len(data) > maxMetadata {
		return nil, corrupt(n, "%w", guard.TooMuch("it is larger than %d bytes", maxMetadata))
	}
	if got := Checksum(sha256.Sum256(data)); got != n.Checksum && n.Type != CommitMeta {
		return nil, corrupt(n, "its content has the checksum %s", got)
	}
	if err := checkMetadata(n.Type, data); err != nil {
		return nil, corrupt(n, "%v", err)
	}
	return data, nil
}

// durable syncs a written file if the repository is configured to sync each object.
func (im *Import) durable(f *stagedFile) error {
	if im.repo.config.perObjectFsync {
		return f.Sync()
	}
	return nil
}

// Close ends the import and releases the lock. Complete objects that are not published stay in
// the staging directory, where the next import in the same boot finds them.
func (im *Import) Close() error { return im.end(true) }

// Discard ends the import, removes all objects that are not published, and releases the lock.
func (im *Import) Discard() error { return im.end(false) }

func (im *Import) end(keep bool) error {
	var err error
	im.flusher.running.Wait()
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
