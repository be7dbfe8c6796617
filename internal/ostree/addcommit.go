package ostree

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"iter"
	"slices"
	"sync"
	"time"

	"machine-pivot/internal/ostree/gvariant"
)

// AddCommit adds a new commit and returns its checksum.
func (im *Import) AddCommit(ctx context.Context, c NewCommit) (Checksum, error) {
	data, err := c.encode()
	if err != nil {
		return Checksum{}, fmt.Errorf("cannot make commit: %w", err)
	}
	return im.addMade(Commit, data)
}

// addMade adds a metadata object that this program has made, without verifying it.
func (im *Import) addMade(t ObjectType, data []byte) (Checksum, error) {
	n := ObjectName{Checksum(sha256.Sum256(data)), t}
	if len(data) > maxMade {
		return n.Checksum, fmt.Errorf("cannot add object %s: it has %d bytes, more than %d", n, len(data), maxMade)
	}
	return n.Checksum, im.add(n, im.metadata(n), func() (objectState, error) {
		err := im.writeMetadata(n, data)
		if err == nil && t != DirMeta { // Finish does not read DirMeta objects
			im.recent.keep(n, data)
		}
		return isStaged, err
	})
}

// maxRecent limits the total size, in bytes, of the metadata objects that are kept in memory
// until Finish has read them. Those of a layer have about 10 KiB, and Finish soon follows.
const maxRecent = 2 << 20

// recent caches metadata objects that this import has just made and written, so that Finish
// need not read them from the disk. Any object may be missing from the cache.
type recent struct {
	mu   sync.Mutex
	data map[ObjectName][]byte
	size int // total size of data, in bytes
}

// keep adds an object, if there is room for it.
func (r *recent) keep(n ObjectName, data []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.size+len(data) > maxRecent {
		return
	}
	if r.data == nil {
		r.data = map[ObjectName][]byte{}
	}
	r.data[n] = data
	r.size += len(data)
}

// take removes an object and returns it, or nil if it is not cached.
func (r *recent) take(n ObjectName) []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	data := r.data[n]
	delete(r.data, n)
	r.size -= len(data)
	return data
}

// AddObjectSet adds a commit that lists file objects: its only directory contains each of them
// under its checksum as the name. ostree-ext records the objects of a layer in this way
// (crates/ostree-ext/src/tar/import.rs). Equal sets give the same commit. AddObjectSet sorts
// the slice in place.
func (im *Import) AddObjectSet(ctx context.Context, set []Checksum) (Checksum, error) {
	slices.SortFunc(set, func(a, b Checksum) int { return bytes.Compare(a[:], b[:]) })
	var files iter.Seq[any] = func(yield func(any) bool) {
		for _, c := range set {
			if !yield(gvariant.Tuple{c.String(), c[:]}) {
				return
			}
		}
	}
	tree, err := dirTreeType.Encode(gvariant.Tuple{files, []any{}})
	if err != nil {
		return Checksum{}, fmt.Errorf("cannot make directory: %w", err)
	}
	root, err := im.addMade(DirTree, tree)
	if err != nil {
		return Checksum{}, err
	}
	rootMeta, err := im.AddDirInfo(ctx, DirInfo{Mode: 0o755})
	if err != nil {
		return Checksum{}, err
	}
	return im.AddCommit(ctx, NewCommit{RootTree: root, RootMeta: rootMeta, Timestamp: time.Unix(0, 0)})
}

// HasObjectSet returns an error unless a commit is one that AddObjectSet makes, and all file
// objects that it lists are in the repository. The error names a missing object.
func (r *Repo) HasObjectSet(c Checksum) error {
	tree, err := r.objectSet(c)
	if err != nil {
		return err
	}
	w := r.newWalk()
	for f := range tree.allFiles() {
		if err := w.require(ObjectName{f.file, File}); err != nil {
			return err
		}
	}
	return nil
}

// IsObjectSet reports whether a commit of the repository is one that AddObjectSet makes.
func (r *Repo) IsObjectSet(c Checksum) bool {
	_, err := r.objectSet(c)
	return err == nil
}

// objectSet returns the directory of a commit that AddObjectSet has made. Any other commit is an
// error: one with directories would seem to list no objects or only some.
func (r *Repo) objectSet(c Checksum) (treeObject, error) {
	info, err := r.LoadCommit(c)
	if err != nil {
		return treeObject{}, err
	}
	tree, err := r.loadTree(info.RootTree)
	if err != nil {
		return treeObject{}, err
	}
	is := len(info.metadata.Bytes()) == 0 && len(tree.dirs.Bytes()) == 0
	for f := range tree.allFiles() {
		is = is && string(f.name) == f.file.String()
	}
	if !is {
		return treeObject{}, fmt.Errorf("commit %s does not list the objects of a layer", c)
	}
	return tree, nil
}
