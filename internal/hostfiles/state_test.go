package hostfiles_test

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/hostfiles"
)

// TestStateFile (D114): a state file is a regular file of a bounded size. Anything else is refused
// with its path and the remedy, and does not hang; what is not there is no error of that kind.
func TestStateFile(t *testing.T) {
	root := t.TempDir()
	path := filepath.Join(root, "state")
	file := hostfiles.StateFile{Root: root, Path: "/state", Remedy: "move it away", Max: 100}
	for name, c := range map[string]struct {
		put  func() error
		want string // "": it is read
	}{
		"a file":        {func() error { return os.WriteFile(path, []byte(`{"a":1}`), 0o600) }, ""},
		"the largest":   {func() error { return os.WriteFile(path, []byte(`{"a":1}`+strings.Repeat(" ", 93)), 0o600) }, ""},
		"one too large": {func() error { return os.WriteFile(path, []byte(`{"a":1}`+strings.Repeat(" ", 94)), 0o600) }, "more than 100 bytes"},
		"a sparse file": {func() error { return errors.Join(os.WriteFile(path, nil, 0o600), os.Truncate(path, 1<<40)) }, "more than 100 bytes"},
		"no JSON":       {func() error { return os.WriteFile(path, []byte("{"), 0o600) }, "unexpected end"},
		"empty":         {func() error { return os.WriteFile(path, nil, 0o600) }, "unexpected end"},
		"a FIFO":        {func() error { return syscall.Mkfifo(path, 0o600) }, "not a regular file"},
		"a socket":      {func() error { return syscall.Mknod(path, syscall.S_IFSOCK|0o600, 0) }, "not a regular file"},
		"a directory":   {func() error { return os.Mkdir(path, 0o700) }, "not a regular file"},
		"a link to a file": {func() error {
			return errors.Join(os.WriteFile(path+"2", []byte("{}"), 0o600), os.Symlink("state2", path))
		}, "link"},
		"a link to a device": {func() error { return os.Symlink("/dev/zero", path) }, "link"},
		"a link in a circle": {func() error { return os.Symlink("state", path) }, "link"},
		"a link to nothing":  {func() error { return os.Symlink("nothing", path) }, "link"},
	} {
		if err := errors.Join(os.RemoveAll(path), c.put()); err != nil {
			t.Fatal(err)
		}
		var value struct{ A int }
		err := file.Decode(&value)
		switch {
		case c.want == "":
			if err != nil || value.A != 1 {
				t.Errorf("%s: %+v, %v", name, value, err)
			}
		case fault.KindOf(err) != fault.Refused || fault.HintOf(err) != "move it away" || !strings.Contains(err.Error(), "cannot use /state: ") || !strings.Contains(err.Error(), c.want):
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	if err := errors.Join(os.RemoveAll(path), file.Decode(nil)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("nothing there: %v", err)
	}
	if err := file.CheckSize(make([]byte, 100)); err != nil {
		t.Error(err)
	}
	if err := file.CheckSize(make([]byte, 101)); fault.KindOf(err) != fault.Refused || fault.HintOf(err) == "" {
		t.Errorf("too large to be read again: %v", err)
	}
}

// TestReadSettings (D114): an administrator's file may be a link, but must be a regular file.
func TestReadSettings(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x")
	for target, regular := range map[string]bool{"y": true, "/dev/zero": false, ".": false} {
		if err := errors.Join(os.RemoveAll(path), os.WriteFile(filepath.Join(filepath.Dir(path), "y"), []byte("y"), 0o600), os.Symlink(target, path)); err != nil {
			t.Fatal(err)
		}
		got, err := hostfiles.ReadSettings(path)
		if (err == nil) != regular || regular && !bytes.Equal(got, []byte("y")) {
			t.Errorf("a link to %s: %q, %v", target, got, err)
		}
	}
}

// TestCheckName (D113) has the limits of file systems on Linux.
func TestCheckName(t *testing.T) {
	long := strings.Repeat("a", 255)
	for name, possible := range map[string]bool{
		"/etc/" + long: true, "/etc/" + long + "a": false, "/" + long + "b/x": false, "../x": true, "": true, "/etc/a\x00b": false,
		strings.Repeat("/"+strings.Repeat("a", 62), 65): true, strings.Repeat("/"+strings.Repeat("a", 63), 64): false,
	} {
		if err := hostfiles.CheckName(name); (err == nil) != possible {
			t.Errorf("%.40q, %d bytes: %v", name, len(name), err)
		}
	}
}
