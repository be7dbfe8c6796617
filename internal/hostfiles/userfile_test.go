package hostfiles_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"machine-pivot/internal/hostfiles"
)

// TestReplaceNamed: a file that a user names keeps its owner and mode, a link stays and its target is replaced,
// and what is no regular file is refused and stays.
func TestReplaceNamed(t *testing.T) {
	const old, text = "old", "new content"
	type at struct {
		path string
		mode os.FileMode
	}
	file := func(mode os.FileMode) func(dir string) error {
		return func(dir string) error {
			return errors.Join(os.WriteFile(dir+"/file", []byte(old), 0o600), os.Chmod(dir+"/file", mode))
		}
	}
	link := func(target string, more func(dir string) error) func(dir string) error {
		return func(dir string) error { return errors.Join(more(dir), os.Symlink(target, dir+"/link")) }
	}
	none := func(string) error { return nil }
	for name, c := range map[string]struct {
		make func(dir string) error
		name string
		mode os.FileMode
		want at // its path is "" if it is refused
	}{
		"a new file":                       {none, "file", 0o644, at{"file", 0o644}},
		"a new secret":                     {none, "file", 0o600, at{"file", 0o600}},
		"a file with a mode":               {file(0o664), "file", 0o644, at{"file", 0o664}},
		"a private file":                   {file(0o400), "file", 0o644, at{"file", 0o400}},
		"a secret in a file that all read": {file(0o644), "file", 0o600, at{"file", 0o600}},
		"a link":                           {link("file", file(0o640)), "link", 0o644, at{"file", 0o640}},
		"a link to nothing":                {link("file", none), "link", 0o644, at{"file", 0o644}},
		"a link that leads up":             {link("../dir/file", file(0o640)), "link", 0o644, at{"file", 0o640}},
		"a link to itself":                 {link("link", none), "link", 0o644, at{}},
		"a link to a device":               {link(os.DevNull, none), "link", 0o644, at{}},
		"a pipe":                           {func(dir string) error { return unix.Mkfifo(dir+"/file", 0o644) }, "file", 0o644, at{}},
		"a directory":                      {func(dir string) error { return os.Mkdir(dir+"/file", 0o755) }, "file", 0o644, at{}},
		"what is left by a write, and more": {func(dir string) error {
			return errors.Join(file(0o604)(dir), os.WriteFile(dir+"/.file.new", nil, 0o777))
		}, "file", 0o644, at{"file", 0o604}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "dir")
			if err := errors.Join(os.Mkdir(dir, 0o755), c.make(dir)); err != nil {
				t.Fatal(err)
			}
			owned := os.Getuid() == 0 && os.Lchown(dir+"/file", 12, 34) == nil
			before, _ := os.Lstat(filepath.Join(dir, c.name))
			err := hostfiles.ReplaceNamed(hostfiles.OS{}, filepath.Join(dir, c.name), []byte(text), c.mode)
			if check := hostfiles.CheckNamed(filepath.Join(dir, c.name)); (check == nil) != (c.want.path != "") {
				t.Errorf("the check says %v", check)
			}
			after, lerr := os.Lstat(filepath.Join(dir, c.name))
			if before != nil && (lerr != nil || before.Mode().Type() != after.Mode().Type()) {
				t.Errorf("it was %v and is %v", before, after)
			}
			if c.want.path == "" {
				if err == nil {
					t.Error("it is not refused")
				}
				return
			}
			got, rerr := os.ReadFile(filepath.Join(dir, c.want.path))
			info, serr := os.Stat(filepath.Join(dir, c.want.path))
			if err != nil || string(got) != text || rerr != nil || serr != nil || info.Mode().Perm() != c.want.mode {
				t.Fatalf("%v: %q, %v", errors.Join(err, rerr, serr), got, info)
			}
			var st unix.Stat_t
			if err := unix.Stat(filepath.Join(dir, c.want.path), &st); err != nil || owned && (st.Uid != 12 || st.Gid != 34) {
				t.Errorf("owner %d:%d, %v", st.Uid, st.Gid, err)
			}
			if _, err := os.Lstat(dir + "/.file.new"); err == nil {
				t.Error("something is left")
			}
		})
	}
}
