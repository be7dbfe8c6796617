package layer

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
)

// nativePath returns the path of an object with a checksum that begins with first.
func nativePath(first, suffix string) string {
	return baseObjects + first + "/" + strings.Repeat("0", 62) + suffix
}

// xattrsPath returns the path of a file-xattrs object.
func xattrsPath(content string) string {
	sum := fmt.Sprintf("%x", sha256.Sum256([]byte(content)))
	return baseObjects + sum[:2] + "/" + sum[2:] + ".file-xattrs"
}

func withContent(h tar.Header, content string) tar.Header {
	h.PAXRecords = map[string]string{"TEST.content": content}
	return h
}

func readNative(t *testing.T, sink *fakeSink, first bool, headers ...tar.Header) (*Native, error) {
	t.Helper()
	sink.got = map[string]int{}
	n := NewNative(sink, first)
	if err := readTar(t.Context(), bytes.NewReader(tarOf(t, headers...)), NewShared(), n); err != nil {
		return n, err
	}
	return n, n.ended()
}

func TestNative(t *testing.T) {
	sink := &fakeSink{}
	n, err := readNative(t, sink, true,
		tar.Header{Name: "./", Typeflag: tar.TypeDir},
		tar.Header{Name: baseObjects + "aa/", Typeflag: tar.TypeDir},
		tar.Header{Name: "sysroot/ostree/repo/config", Size: 50},
		tar.Header{Name: nativePath("aa", ".commit"), Size: 5},
		tar.Header{Name: nativePath("aa", ".commitmeta"), Size: 1},
		tar.Header{Name: nativePath("bb", ".dirmeta"), Size: 12},
		// The format until bootc 1.7: each set once, and links to it.
		withContent(tar.Header{Name: xattrsPath("old")}, "old"),
		tar.Header{Name: nativePath("11", ".file-xattrs-link"), Typeflag: tar.TypeLink, Linkname: xattrsPath("old")},
		tar.Header{Name: nativePath("11", ".file"), Size: 7, Mode: 0o4755, Uid: 1, Gid: 2},
		tar.Header{Name: "usr/bin/x", Typeflag: tar.TypeLink, Linkname: nativePath("11", ".file")},
		tar.Header{Name: nativePath("12", ".file-xattrs-link"), Typeflag: tar.TypeLink, Linkname: "/" + xattrsPath("old")},
		tar.Header{Name: nativePath("12", ".file"), Size: maxBuffered + 1, Mode: 0o644},
		// The format since then: each link contains the attributes.
		withContent(tar.Header{Name: nativePath("13", ".file-xattrs-link")}, "new"),
		tar.Header{Name: nativePath("13", ".file"), Typeflag: tar.TypeSymlink, Linkname: "//odd/../target", Mode: 0o755},
		tar.Header{Name: nativePath("14", ".file-xattrs-link")},
		tar.Header{Name: nativePath("14", ".file"), Mode: 0o100600},
	)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]int{
		"meta aa.commit": 5, "meta aa.commitmeta": 1, "meta bb.dirmeta": 12,
		`file 11 104755 1:2 "" "old"`: 7, `file 12 100644 0:0 "" "old"`: maxBuffered + 1,
		`file 13 120777 0:0 "//odd/../target" "new"`: 0, `file 14 100600 0:0 "" ""`: 0,
	}
	if !maps.Equal(sink.got, want) {
		t.Errorf("objects %v, want %v", sink.got, want)
	}
	if len(n.Files) != 4 || n.Commit.String()[:2] != "aa" {
		t.Errorf("files %v, commit %s", n.Files, n.Commit)
	}
}

func TestNativeRefuses(t *testing.T) {
	file := func(first string) tar.Header {
		return tar.Header{Name: nativePath(first, ".file"), Size: 1, Mode: 0o644}
	}
	xattrs := func(first string) tar.Header { return tar.Header{Name: nativePath(first, ".file-xattrs-link")} }
	commit := tar.Header{Name: nativePath("aa", ".commit"), Size: 1}
	for what, c := range map[string]struct {
		first   bool
		entries []tar.Header
	}{
		"a file without xattrs":         {false, []tar.Header{file("11")}},
		"xattrs of another file":        {false, []tar.Header{xattrs("12"), file("11")}},
		"xattrs twice":                  {false, []tar.Header{xattrs("11"), xattrs("12"), file("12")}},
		"xattrs without a file":         {false, []tar.Header{xattrs("11")}},
		"an object twice":               {false, []tar.Header{xattrs("11"), file("11"), xattrs("11"), file("11")}},
		"a link to nothing":             {false, []tar.Header{{Name: nativePath("11", ".file-xattrs-link"), Typeflag: tar.TypeLink, Linkname: xattrsPath("none")}}},
		"a link to elsewhere":           {false, []tar.Header{{Name: nativePath("11", ".file-xattrs-link"), Typeflag: tar.TypeLink, Linkname: "../../../etc/shadow"}}},
		"xattrs with another checksum":  {false, []tar.Header{withContent(tar.Header{Name: xattrsPath("one")}, "two")}},
		"too large xattrs":              {false, []tar.Header{{Name: nativePath("11", ".file-xattrs-link"), Size: maxXattrs + 1}}},
		"a device":                      {false, []tar.Header{xattrs("11"), {Name: nativePath("11", ".file"), Typeflag: tar.TypeChar}}},
		"a hard link":                   {false, []tar.Header{xattrs("11"), {Name: nativePath("11", ".file"), Typeflag: tar.TypeLink, Linkname: "x"}}},
		"a commit in a further layer":   {false, []tar.Header{commit}},
		"a dirtree in a further layer":  {false, []tar.Header{{Name: nativePath("bb", ".dirtree"), Size: 1}}},
		"two commits":                   {true, []tar.Header{commit, {Name: nativePath("ab", ".commit"), Size: 1}}},
		"no commit":                     {true, []tar.Header{xattrs("11"), file("11")}},
		"metadata that is a link":       {true, []tar.Header{{Name: nativePath("aa", ".commit"), Typeflag: tar.TypeSymlink, Linkname: "x"}}},
		"an object of an unknown kind":  {true, []tar.Header{{Name: nativePath("aa", ".filez"), Size: 1}}},
		"an object without a checksum":  {true, []tar.Header{{Name: baseObjects + "aa/xyz.file", Size: 1}}},
		"a whiteout among the objects":  {true, []tar.Header{{Name: baseObjects + "aa/.wh.x"}}},
		"a file beside the directories": {true, []tar.Header{{Name: baseObjects + "x"}}},
	} {
		if _, err := readNative(t, &fakeSink{}, c.first, c.entries...); err == nil {
			t.Errorf("%s was taken", what)
		} else if _, ok := errors.AsType[sinkError](err); ok {
			t.Errorf("%s is blamed on the repository: %v", what, err)
		}
	}
}
