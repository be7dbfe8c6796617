package ostree

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"machine-pivot/ostree/gvariant"
)

// AddCommit adds a commit that is made here.
func (im *Import) AddCommit(ctx context.Context, c NewCommit) (Checksum, error) {
	data, err := c.encode()
	if err != nil {
		return Checksum{}, fmt.Errorf("cannot make commit: %w", err)
	}
	return im.addMade(Commit, data)
}

// addMade adds a metadata object that was made here, which needs no check.
func (im *Import) addMade(t ObjectType, data []byte) (Checksum, error) {
	n := ObjectName{Checksum(sha256.Sum256(data)), t}
	if len(data) > maxMade {
		return n.Checksum, fmt.Errorf("cannot add object %s: it has %d bytes, more than %d", n, len(data), maxMade)
	}
	return n.Checksum, im.add(n, func() (objectState, error) { return staged, im.writeMetadata(n, data) })
}

// AddObjectSet adds a commit that keeps file objects together: its one directory
// has each of them under its own checksum as name. This is how ostree-ext notes
// what a layer brought (crates/ostree-ext/src/tar/import.rs); the same set makes
// the same commit. It sorts the set.
func (im *Import) AddObjectSet(ctx context.Context, set []Checksum) (Checksum, error) {
	slices.SortFunc(set, func(a, b Checksum) int { return bytes.Compare(a[:], b[:]) })
	var files iter.Seq[any] = func(yield func(any) bool) {
		for _, c := range set {
			if !yield(gvariant.Tuple{c.String(), c[:]}) {
				return
			}
		}
	}
	tree, err := gvariant.Encode(dirTreeType, gvariant.Tuple{files, []any{}})
	if err != nil {
		return Checksum{}, fmt.Errorf("cannot make directory: %w", err)
	}
	root, err := im.addMade(DirTree, tree)
	if err != nil {
		return Checksum{}, err
	}
	meta, err := gvariant.Encode(dirMetaType,
		gvariant.Tuple{uint32(0), uint32(0), bigEndian(unix.S_IFDIR | 0o755), []any{}})
	if err != nil {
		return Checksum{}, fmt.Errorf("cannot make directory metadata: %w", err)
	}
	rootMeta, err := im.addMade(DirMeta, meta)
	if err != nil {
		return Checksum{}, err
	}
	return im.AddCommit(ctx, NewCommit{RootTree: root, RootMeta: rootMeta, Timestamp: time.Unix(0, 0)})
}

// HasObjectSet checks that all file objects of a commit that AddObjectSet made are
// in the repository; the error names one that is not.
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

func (r *Repo) loadTree(c Checksum) (dirTree, error) {
	name := ObjectName{c, DirTree}
	data, err := os.ReadFile(r.objectPath(name))
	if err != nil {
		return dirTree{}, fmt.Errorf("cannot load directory: %w", err)
	}
	tree, err := openDirTree(data)
	if err != nil {
		return dirTree{}, corrupt(name, "%v", err)
	}
	return tree, nil
}

// AddTreeWithout adds a tree like that of root, which is in the repository, but
// without those files of one directory that are regular and empty. It returns
// root itself if there are none.
func (im *Import) AddTreeWithout(ctx context.Context, root Checksum, dir string, names ...string) (Checksum, error) {
	tree, err := im.repo.loadTree(root)
	if err != nil {
		return Checksum{}, err
	}
	first, rest, _ := strings.Cut(dir, "/")
	if first == "" {
		return im.addWithoutFiles(root, tree, names)
	}
	below, found := tree.dir(first)
	if !found {
		return root, nil
	}
	changed, err := im.AddTreeWithout(ctx, below.tree, rest, names...)
	if err != nil || changed == below.tree {
		return root, err
	}
	data, err := tree.withTree(first, changed)
	if err != nil {
		return Checksum{}, fmt.Errorf("cannot make directory: %w", err)
	}
	return im.addMade(DirTree, data)
}

// addWithoutFiles is AddTreeWithout for the files of a directory itself.
func (im *Import) addWithoutFiles(root Checksum, tree dirTree, names []string) (Checksum, error) {
	gone := map[string]bool{}
	for f := range tree.allFiles() {
		if !slices.Contains(names, string(f.name)) {
			continue
		}
		empty, err := im.repo.isEmpty(f.file)
		if err != nil {
			return Checksum{}, err
		}
		if empty {
			gone[string(f.name)] = true
		}
	}
	if len(gone) == 0 {
		return root, nil
	}
	var kept iter.Seq[any] = func(yield func(any) bool) {
		for f := range tree.allFiles() {
			if !gone[string(f.name)] && !yield(f.raw) {
				return
			}
		}
	}
	data, err := tree.withFiles(kept)
	if err != nil {
		return Checksum{}, fmt.Errorf("cannot make directory: %w", err)
	}
	return im.addMade(DirTree, data)
}

// isEmpty reports whether an object is an empty regular file.
func (r *Repo) isEmpty(c Checksum) (bool, error) {
	info, err := os.Lstat(r.objectPath(ObjectName{c, File}))
	if errors.Is(err, fs.ErrNotExist) {
		return false, corrupt(ObjectName{c, File}, "it is missing")
	}
	if err != nil {
		return false, fmt.Errorf("cannot look for object: %w", err)
	}
	return info.Mode().IsRegular() && info.Size() == 0, nil
}
