package hostfiles_test

import (
	"maps"
	"os"
	"path/filepath"
	"testing"

	"machine-pivot/internal/hostfiles"
)

// TestManyAtOnce: entries that are read in a row are those that are read one by one. The order does not matter, nor
// whether their directory exists, is a file, is a user's or is behind a link.
func TestManyAtOnce(t *testing.T) {
	root := t.TempDir()
	for _, dir := range []string{"etc/a/b", "etc/users/below", "etc/other"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(filepath.Join(root, "etc/users"), 0o777); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"etc/top", "etc/a/1", "etc/a/2", "etc/a/b/1", "etc/users/1", "etc/users/below/1", "etc/other/1"} {
		if err := os.WriteFile(filepath.Join(root, name), []byte(name), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for name, to := range map[string]string{"etc/link": "a", "etc/users/link": "../a"} {
		if err := os.Symlink(to, filepath.Join(root, name)); err != nil {
			t.Fatal(err)
		}
	}
	forth := []string{
		"/etc/a/1", "/etc/a/2", "/etc/a/none", "/etc/a/b/1", "/etc/a/1/below", "/etc/a/1", "/etc/none/1", "/etc/none/2", "/etc/a/2", "/etc/top",
		"/etc/users/1", "/etc/users/link/1", "/etc/users/below/1", "/etc/users/below/none", "/etc/link/1", "/etc/link", "/etc/other/1", "",
	}
	for _, paths := range [][]string{forth, backwards(forth)} {
		all, err := hostfiles.ReadAll(root, paths)
		if err != nil {
			t.Fatal(err)
		}
		users := hostfiles.AllOfUsers(root, paths)
		one, of := map[string]hostfiles.File{}, map[string]bool{}
		for _, path := range paths {
			if f, ok, err := hostfiles.Read(root, path); err != nil {
				t.Fatal(err)
			} else if ok {
				one[path] = f
			}
			if hostfiles.OfUsers(root, path) {
				of[path] = true
			}
		}
		same := func(a, b hostfiles.File) bool { return a.Entry == b.Entry && string(a.Content) == string(b.Content) }
		if !maps.EqualFunc(all, one, same) || len(all) != 10 {
			t.Errorf("%d entries\n%+v\nwant\n%+v", len(all), all, one)
		}
		if !maps.Equal(users, of) || len(of) != 4 {
			t.Errorf("of users: %v\nwant %v", users, of)
		}
	}
}

func backwards(paths []string) (reversed []string) {
	for _, path := range paths {
		reversed = append([]string{path}, reversed...)
	}
	return reversed
}

// TestLinksInOtherRoots: a link of another system leads to where it does there, an absolute one too.
func TestLinksInOtherRoots(t *testing.T) {
	root := t.TempDir()
	for _, dir := range []string{"etc/a/b", "etc/users"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(root, "etc/a/b/f"), []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	for name, to := range map[string]string{
		"etc/absolute": "/etc/a", "etc/twice": "absolute/b", "etc/up": "../etc/a", "etc/circle": "/etc/circle", "etc/users/link": "/etc/a",
	} {
		if err := os.Symlink(to, filepath.Join(root, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(filepath.Join(root, "etc/users"), 0o777); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]bool{
		"/etc/absolute/b/f": true, "/etc/twice/f": true, "/etc/up/b/f": true, "/etc/circle/f": false, "/etc/users/link/b/f": false, "/etc/absolute/none/f": false,
	} {
		if f, there, err := hostfiles.Read(root, path); err != nil || there != want || there && (string(f.Content) != "x" || f.Path != path) {
			t.Errorf("%s: %v, %q, %v", path, there, f.Content, err)
		}
	}
}
