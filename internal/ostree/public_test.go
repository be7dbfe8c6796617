package ostree_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"machine-pivot/internal/ostree"
)

// TestReadDirInfo: what is read of a directory's metadata is what was added, with its attributes.
func TestReadDirInfo(t *testing.T) {
	im := begin(t, newRepo(t))
	want := ostree.DirInfo{UID: 1, GID: 2, Mode: 0o40750, Xattrs: map[string][]byte{"user.a": []byte("1"), "user.b": []byte("\x00")}}
	meta, err := im.AddDirInfo(t.Context(), want)
	check(t, err)
	if got, err := im.ReadDirInfo(meta); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
	check(t, im.Discard())
}

// TestCheckVerity: a commit lacks fs-verity if one of its files does; other objects never have it.
func TestCheckVerity(t *testing.T) {
	s, r := newSource(t), newRepo(t)
	_, err := importAll(t, r, s.commit, s.objects(), "os")
	check(t, err)
	err = r.CheckVerity(t.Context(), s.commit)
	if unsealed, ok := errors.AsType[*ostree.UnsealedError](err); !ok || unsealed.Object.Type != ostree.File {
		t.Errorf("error %v", err)
	}
	// Links and empty files have no content that it could protect.
	im := begin(t, r)
	link, err := im.AddNewFile(t.Context(), ostree.FileInfo{Mode: unix.S_IFLNK | 0o777, Target: "x"}, nil)
	check(t, err)
	empty, err := im.AddNewFile(t.Context(), ostree.FileInfo{Mode: unix.S_IFREG | 0o644}, strings.NewReader(""))
	check(t, err)
	meta, err := im.AddDirInfo(t.Context(), ostree.DirInfo{Mode: 0o755})
	check(t, err)
	tree, err := im.AddDirectory(t.Context(), &ostree.Directory{Files: map[string]ostree.Checksum{"link": link, "empty": empty}})
	check(t, err)
	commit, err := im.AddCommit(t.Context(), ostree.NewCommit{RootTree: tree, RootMeta: meta})
	check(t, err)
	check(t, im.Finish(t.Context(), ostree.Root{Commit: commit, Refs: []string{"links"}}))
	check(t, r.CheckVerity(t.Context(), commit))
}
