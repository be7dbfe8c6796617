package ostree_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/guard"
	"machine-pivot/internal/ostree"
)

// TestExpandedTree: a tree in which each directory contains the previous one ten times is
// small in the repository and huge when it is checked out.
func TestExpandedTree(t *testing.T) {
	r := newRepo(t)
	im := begin(t, r)
	defer im.Discard()
	meta, err := im.AddDirInfo(t.Context(), ostree.DirInfo{Mode: 0o755})
	check(t, err)
	file, err := im.AddNewFile(t.Context(), ostree.FileInfo{Mode: 0o100644}, strings.NewReader(""))
	check(t, err)
	directory := func(below ostree.Checksum, dirs, files int) ostree.Checksum {
		d := &ostree.Directory{Files: map[string]ostree.Checksum{}, Dirs: map[string]ostree.DirChecksums{}}
		for n := range dirs {
			d.Dirs[fmt.Sprintf("d%d", n)] = ostree.DirChecksums{Tree: below, Meta: meta}
		}
		for n := range files {
			d.Files[fmt.Sprintf("f%d", n)] = file
		}
		sum, err := im.AddDirectory(t.Context(), d)
		check(t, err)
		return sum
	}
	finish := func(root ostree.Checksum) (ostree.Checksum, error) {
		commit, err := im.AddCommit(t.Context(), ostree.NewCommit{RootTree: root, RootMeta: meta, Timestamp: time.Unix(0, 0)})
		check(t, err)
		return commit, im.Finish(t.Context(), ostree.Root{Commit: commit, Refs: []string{"os"}})
	}
	tree := directory(ostree.Checksum{}, 0, 0)
	for range 6 { // 1,111,110 directories
		tree = directory(tree, 10, 0)
	}
	for _, row := range []struct {
		dirs, files int
		fits        bool
	}{{9, 1, true}, {9, 2, false}, {9, 0, true}, {10, 0, false}} {
		commit, err := finish(directory(tree, row.dirs, row.files))
		_, damaged := errors.AsType[*ostree.CorruptError](err)
		if row.fits && err != nil || !row.fits && (!damaged || !errors.Is(err, guard.ErrTooMuch) || !strings.Contains(err.Error(), "more than 10000000 files and directories")) {
			t.Errorf("%d directories, %d files: %v, want that it fits: %v", row.dirs, row.files, err, row.fits)
		}
		if to, err := r.ResolveRef("os"); err != nil || (to == commit) != row.fits {
			t.Errorf("%d directories, %d files: the ref is to %s, %v", row.dirs, row.files, to, err)
		}
		if row.fits {
			check(t, r.HasWhole(t.Context(), commit))
		}
	}
	for range 60 {
		tree = directory(tree, 10, 0)
	}
	if _, err := finish(tree); err == nil || !strings.Contains(err.Error(), "more than 10000000") {
		t.Errorf("10^66 directories: %v", err)
	}
	// A directory that an earlier Finish has published counts again.
	large, err := finish(directory(tree, 1, 1))
	if err == nil {
		t.Errorf("commit %s was published", large)
	}
}

// TestLimits: what is beyond a limit is an error of its own kind, whichever object has it.
func TestLimits(t *testing.T) {
	im := begin(t, newRepo(t))
	defer func() { check(t, im.Discard()) }()
	many := func(number, length int) error {
		d := &ostree.Directory{Files: map[string]ostree.Checksum{}}
		for n := range number {
			d.Files[fmt.Sprintf("%0*d", length, n)] = ostree.Checksum{}
		}
		_, err := im.AddDirectory(t.Context(), d)
		return err
	}
	for name, add := range map[string]func() error{
		"many names": func() error { return many(120_001, 6) },
		"long names": func() error { return many(60_000, 250) },
		"metadata": func() error {
			return im.AddMetadata(t.Context(), ostree.ObjectName{Type: ostree.DirTree}, bytes.NewReader(make([]byte, 16<<20+1)))
		},
		"metadata of unknown size": func() error {
			return im.AddMetadata(t.Context(), ostree.ObjectName{Type: ostree.DirTree}, io.LimitReader(zeroes{}, 17<<20))
		},
		"a header": func() error {
			return im.AddArchiveFile(t.Context(), ostree.Checksum{}, strings.NewReader("\x00\x20\x00\x00\x00\x00\x00\x00"))
		},
	} {
		if err := add(); !errors.Is(err, guard.ErrTooMuch) || fault.KindOf(err) != fault.BadInput {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// zeroes is an endless stream.
type zeroes struct{}

func (zeroes) Read(p []byte) (int, error) { clear(p); return len(p), nil }
