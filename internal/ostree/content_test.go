package ostree_test

import (
	"errors"
	"io"
	"strings"
	"testing"

	"machine-pivot/internal/ostree"
)

// contentWorld is a repository with a large file and a link.
type contentWorld struct {
	repo                 *ostree.Repo
	commit, object, link ostree.ObjectName
	content              string
}

func newContentWorld(t *testing.T) contentWorld {
	t.Helper()
	s := newSource(t)
	w := contentWorld{repo: newRepo(t), commit: ostree.ObjectName{Checksum: s.commit, Type: ostree.Commit}, content: strings.Repeat("0123456789abcdef", 3<<16)}
	_, err := importAll(t, w.repo, s.commit, s.objects(), "os")
	check(t, err)
	find := func(path string) ostree.ObjectName {
		fields := strings.Fields(run(t, "ostree", "ls", "--repo="+w.repo.Path(), "-C", "os", path))
		c, err := ostree.ParseChecksum(fields[4])
		check(t, err)
		return ostree.ObjectName{Checksum: c, Type: ostree.File}
	}
	w.object, w.link = find("/usr/lib/large"), find("/usr/lib/link")
	return w
}

// TestExpectedFile: a file that is in the repository is not written again, but its content is
// compared; a file with other metadata is a new object.
func TestExpectedFile(t *testing.T) {
	w := newContentWorld(t)
	info := ostree.FileInfo{Mode: 0o100644, Size: uint64(len(w.content))}
	add := func(info ostree.FileInfo, content string) (ostree.Checksum, error) {
		im := begin(t, w.repo)
		defer im.Discard()
		c, err := im.AddExpectedFile(t.Context(), w.object.Checksum, info, &io.LimitedReader{R: strings.NewReader(content), N: int64(len(content))})
		if stats := im.Stats(); err == nil && c == w.object.Checksum && (stats.ObjectsNew != 0 || stats.ObjectsTotal != 1 || stats.BytesWritten != 0) {
			t.Errorf("%+v", stats)
		}
		return c, err
	}
	if c, err := add(info, w.content); err != nil || c != w.object.Checksum {
		t.Errorf("the same file: %s, %v", c, err)
	}
	if _, err := add(info, "X"+w.content[1:]); !isCorrupt(err) {
		t.Errorf("other content: %v", err)
	}
	if _, err := add(info, w.content[1:]); !isCorrupt(err) {
		t.Errorf("shorter content: %v", err)
	}
	info.Mode = 0o100755
	if c, err := add(info, w.content); err != nil || c == w.object.Checksum {
		t.Errorf("another mode: %s, %v", c, err)
	}
}

func isCorrupt(err error) bool {
	_, is := errors.AsType[*ostree.CorruptError](err)
	return is
}

// TestContent: the content of objects in the repository can be read, also of metadata, but not what
// a link leads to.
func TestContent(t *testing.T) {
	w := newContentWorld(t)
	im := begin(t, w.repo)
	defer im.Discard()
	if size, found := im.ContentSize(w.object); !found || size != int64(len(w.content)) {
		t.Errorf("%d bytes, %v", size, found)
	}
	body, err := im.OpenContent(w.object)
	if err != nil {
		t.Fatal(err)
	}
	defer body.Close()
	if got, err := io.ReadAll(body); err != nil || string(got) != w.content {
		t.Errorf("%q, %v", got, err)
	}
	if size, found := im.ContentSize(w.commit); !found || size == 0 {
		t.Errorf("the commit: %d bytes, %v", size, found)
	}
	if _, found := im.ContentSize(w.link); found {
		t.Error("a link has content")
	}
	if body, err := im.OpenContent(w.link); err == nil {
		t.Errorf("a link was followed: %v", body.Close())
	}
	missing := ostree.ObjectName{Type: ostree.File}
	if _, found := im.ContentSize(missing); found {
		t.Error("a missing object has content")
	}
	bySize := w.repo.FilesBySize(int64(len(w.content)), 1)
	if found := bySize[int64(len(w.content))]; len(found) != 1 || found[0] != w.object.Checksum || len(bySize) != 1 {
		t.Errorf("by size: %v", bySize)
	}
	if xattrs, err := im.Xattrs(w.object.Checksum); err != nil || len(xattrs) != 0 {
		t.Errorf("%q, %v", xattrs, err)
	}
}
