package ostree

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
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
	return im.addMade(ctx, Commit, data)
}

// addMade adds a metadata object by its content.
func (im *Import) addMade(ctx context.Context, t ObjectType, data []byte) (Checksum, error) {
	c := Checksum(sha256.Sum256(data))
	return c, im.AddMetadata(ctx, ObjectName{c, t}, bytes.NewReader(data))
}

// AddObjectSet adds a commit that keeps file objects together: its one directory
// has each of them under its own checksum as name. This is how ostree-ext notes
// what a layer brought (crates/ostree-ext/src/tar/import.rs); the same set makes
// the same commit.
func (im *Import) AddObjectSet(ctx context.Context, set []Checksum) (Checksum, error) {
	tree := &dirTree{}
	for _, c := range set {
		tree.files = append(tree.files, fileEntry{c.String(), c})
	}
	slices.SortFunc(tree.files, func(a, b fileEntry) int { return strings.Compare(a.name, b.name) })
	root, err := im.addTree(ctx, tree)
	if err != nil {
		return Checksum{}, err
	}
	meta, err := gvariant.Encode(dirMetaType,
		gvariant.Tuple{uint32(0), uint32(0), bigEndian(unix.S_IFDIR | 0o755), []any{}})
	if err != nil {
		return Checksum{}, fmt.Errorf("cannot make directory metadata: %w", err)
	}
	rootMeta, err := im.addMade(ctx, DirMeta, meta)
	if err != nil {
		return Checksum{}, err
	}
	return im.AddCommit(ctx, NewCommit{RootTree: root, RootMeta: rootMeta, Timestamp: time.Unix(0, 0)})
}

func (im *Import) addTree(ctx context.Context, d *dirTree) (Checksum, error) {
	data, err := d.encode()
	if err != nil {
		return Checksum{}, fmt.Errorf("cannot make directory: %w", err)
	}
	return im.addMade(ctx, DirTree, data)
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
	for _, f := range tree.files {
		name := ObjectName{f.file, File}
		if have, err := r.Has(name); err != nil || !have {
			return errors.Join(err, corrupt(name, "it is missing"))
		}
	}
	return nil
}

func (r *Repo) loadTree(c Checksum) (*dirTree, error) {
	name := ObjectName{c, DirTree}
	data, err := os.ReadFile(r.objectPath(name))
	if err != nil {
		return nil, fmt.Errorf("cannot load directory: %w", err)
	}
	tree, err := parseDirTree(data)
	if err != nil {
		return nil, corrupt(name, "%v", err)
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
	if first, rest, _ := strings.Cut(dir, "/"); first != "" {
		i, found := tree.dir(first)
		if !found {
			return root, nil
		}
		changed, err := im.AddTreeWithout(ctx, tree.dirs[i].tree, rest, names...)
		if err != nil || changed == tree.dirs[i].tree {
			return root, err
		}
		tree.dirs[i].tree = changed
		return im.addTree(ctx, tree)
	}
	kept := make([]fileEntry, 0, len(tree.files))
	for _, f := range tree.files {
		empty, err := im.repo.isEmpty(f.file)
		if err != nil {
			return Checksum{}, err
		}
		if !empty || !slices.Contains(names, f.name) {
			kept = append(kept, f)
		}
	}
	if len(kept) == len(tree.files) {
		return root, nil
	}
	return im.addTree(ctx, &dirTree{kept, tree.dirs})
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
