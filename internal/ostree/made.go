package ostree

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"machine-pivot/internal/ostree/gvariant"
)

// AddCommit adds a new commit.
func (im *Import) AddCommit(ctx context.Context, c NewCommit) (Checksum, error) {
	data, err := c.encode()
	if err != nil {
		return Checksum{}, fmt.Errorf("cannot make commit: %w", err)
	}
	return im.addMade(Commit, data)
}

// addMade adds a metadata object that this program has made. It is not verified.
func (im *Import) addMade(t ObjectType, data []byte) (Checksum, error) {
	n := ObjectName{Checksum(sha256.Sum256(data)), t}
	if len(data) > maxMade {
		return n.Checksum, fmt.Errorf("cannot add object %s: it has %d bytes, more than %d", n, len(data), maxMade)
	}
	return n.Checksum, im.add(n, func() (objectState, error) { return isStaged, im.writeMetadata(n, data) })
}

// AddObjectSet adds a commit that lists file objects: its one directory has each of them
// with its checksum as name. ostree-ext records the objects of a layer so
// (crates/ostree-ext/src/tar/import.rs). The same set makes the same commit. The slice is
// sorted in place.
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

// HasObjectSet is an error if a file object of a commit made by AddObjectSet is not in the
// repository; the error names it.
func (r *Repo) HasObjectSet(c Checksum) error {
	info, err := r.LoadCommit(c)
	if err != nil {
		return err
	}
	tree, err := r.loadTree(info.RootTree)
	if err != nil {
		return err
	}
	for f := range tree.allFiles() {
		name := ObjectName{f.file, File}
		if have, err := r.Has(name); err != nil || !have {
			return errors.Join(err, corrupt(name, "it is missing"))
		}
	}
	return nil
}

func (r *Repo) loadTree(c Checksum) (treeObject, error) { return locator(r.objectPath).loadTree(c) }
