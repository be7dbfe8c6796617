package sepolicy_test

import (
	"io/fs"
	"path"
	"strings"
	"testing"

	"machine-pivot/internal/sepolicy"
)

// read reads contexts from memory.
func read(files map[string]string) (*sepolicy.Contexts, error) {
	return sepolicy.Files(func(name string) ([]byte, error) {
		if text, ok := files[path.Base(name)]; ok {
			return []byte(text), nil
		}
		return nil, fs.ErrNotExist
	}).Contexts("any")
}

// TestPrecedence: the order of files and patterns determines the label.
func TestPrecedence(t *testing.T) {
	c, err := read(map[string]string{
		"file_contexts":          "/usr/.*  first\n/usr/exact  exact\n/usr/e.*  second\n/usr/d\\.d(/.*)?  -d  dir\n/usr/n.*  <<none>>\n",
		"file_contexts.homedirs": "/home/[^/]+  home\n",
		"file_contexts.local":    "/usr/local.*  local\n/usr/exact  -l  link\n",
		"file_contexts.subs":     "/a  /usr\n/a/b  /home\n",
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		path string
		mode fs.FileMode
		want string
	}{
		{"/usr/x", 0, "first"}, {"/usr/ex", 0, "second"},
		{"/usr/exact", 0, "exact"}, {"/usr/exact", fs.ModeSymlink, "link"},
		{"/usr/d.d", fs.ModeDir, "dir"}, {"/usr/d.d/x", fs.ModeDir, "dir"}, {"/usr/d.d", 0, "first"}, {"/usr/dxd", fs.ModeDir, "first"},
		{"/usr/none", 0, ""}, {"/elsewhere", 0, ""},
		{"/usr/local/x", 0, "local"}, {"/home/me", fs.ModeDir, "home"}, {"/home/me/x", fs.ModeDir, ""},
		{"//usr///exact/", 0, "exact"}, {"/a/exact", 0, "exact"}, {"/a/b/me", 0, "home"}, {"/ab/exact", 0, ""},
		{"/usr/ex\n", 0, "second"},
	} {
		if got, known, err := c.Label(row.path, row.mode); err != nil || got != row.want || known != (got != "") {
			t.Errorf("%q (%s): %q, %v, want %q", row.path, row.mode, got, err, row.want)
		}
	}
}

// TestUnknownPatterns: patterns that only libselinux supports are errors.
func TestUnknownPatterns(t *testing.T) {
	if _, err := read(map[string]string{"file_contexts": "/ü label\n"}); err == nil || !strings.Contains(err.Error(), "not of ASCII") {
		t.Errorf("error %v", err)
	}
	for _, pattern := range []string{"/x(?=y).*", "/x.*|/xy"} {
		c, err := read(map[string]string{"file_contexts": pattern + "  label\n"})
		if err == nil {
			_, _, err = c.Label("/xy", 0)
		}
		if err == nil || !strings.Contains(err.Error(), "cannot match the pattern \""+pattern) {
			t.Errorf("error %v", err)
		}
	}
}
