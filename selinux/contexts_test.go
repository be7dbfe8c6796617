package selinux_test

import (
	"io/fs"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"machine-pivot/selinux"
)

// read reads contexts from memory.
func read(files map[string]string) (*selinux.Contexts, error) {
	return selinux.Read(func(name string) ([]byte, error) {
		if text, ok := files[name]; ok {
			return []byte(text), nil
		}
		return nil, fs.ErrNotExist
	})
}

// TestPrecedence has what a policy's order decides.
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
		mode uint32
		want string
	}{
		{"/usr/x", unix.S_IFREG, "first"}, {"/usr/ex", unix.S_IFREG, "second"},
		{"/usr/exact", unix.S_IFREG, "exact"}, {"/usr/exact", unix.S_IFLNK, "link"}, {"/usr/exact", 0, "link"},
		{"/usr/d.d", unix.S_IFDIR, "dir"}, {"/usr/d.d/x", unix.S_IFDIR, "dir"}, {"/usr/d.d", unix.S_IFREG, "first"}, {"/usr/dxd", unix.S_IFDIR, "first"},
		{"/usr/none", unix.S_IFREG, ""}, {"/elsewhere", unix.S_IFREG, ""},
		{"/usr/local/x", unix.S_IFREG, "local"}, {"/home/me", unix.S_IFDIR, "home"}, {"/home/me/x", unix.S_IFDIR, ""},
		{"//usr///exact/", unix.S_IFREG, "exact"}, {"/a/exact", unix.S_IFREG, "exact"}, {"/a/b/me", unix.S_IFREG, "home"}, {"/ab/exact", unix.S_IFREG, ""},
		{"/usr/ex\n", unix.S_IFREG, "second"},
	} {
		if got, err := c.Label(row.path, row.mode); err != nil || got != row.want {
			t.Errorf("%q (%o): %q, %v, want %q", row.path, row.mode, got, err, row.want)
		}
	}
}

// TestBadContexts are those that libselinux does not load either, and patterns that
// only it knows.
func TestBadContexts(t *testing.T) {
	for text, want := range map[string]string{
		"/x -y label\n": `line 1: unknown file type "-y"`, "\n/x\n": "line 2: 1 fields", "/x a b c\n": "line 1: 4 fields", "/ü label\n": "not of ASCII",
	} {
		if _, err := read(map[string]string{"file_contexts": text}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	if _, err := read(nil); err == nil {
		t.Error("a policy without contexts")
	}
	for _, pattern := range []string{"/x(?=y).*", "/x.*|/xy"} {
		c, err := read(map[string]string{"file_contexts": pattern + "  label\n"})
		if err == nil {
			_, err = c.Label("/xy", unix.S_IFREG)
		}
		if err == nil || !strings.Contains(err.Error(), "cannot match the pattern \""+pattern) {
			t.Errorf("error %v", err)
		}
	}
}

func TestEnabled(t *testing.T) {
	for config, want := range map[string]string{
		"SELINUX=enforcing\nSELINUXTYPE=a\nSELINUXTYPE=b\n": "b", "SELINUXTYPE=a\nSELINUX=Permissive\n": "a",
		"SELINUX=disabled\nSELINUXTYPE=a\n": "", "SELINUXTYPE=a\n": "", "# SELINUX=enforcing\nSELINUXTYPE=a\n": "", "": "",
	} {
		if got := selinux.Enabled(config); got != want {
			t.Errorf("%q: %q, want %q", config, got, want)
		}
	}
}
