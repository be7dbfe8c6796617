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

// TestStateFile: a state file is a regular file of a bounded size. Anything else is refused
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
}

// full is a disk without space.
type full struct{ hostfiles.OS }

func (full) Write(string, []byte, fs.FileMode) error { return syscall.ENOSPC }

// TestSaveStateFile: a state file is written with its mode, in a directory that is made for it, by a
// run after a killed one, too. What could not be read again is not written, and what cannot be
// written is an error with the file's name. Nothing is left of a file that is removed.
func TestSaveStateFile(t *testing.T) {
	type content struct {
		Format int    `json:"format"`
		Text   string `json:"text"`
	}
	root := t.TempDir()
	file := hostfiles.StateFile{Root: root, Path: "/var/state", Max: 100, Format: 2, Disk: hostfiles.OS{}, Mode: 0o640}
	path, leftover := filepath.Join(root, "var/state"), filepath.Join(root, "var/.state.new")
	for _, text := range []string{"one", "two"} {
		var have content
		if err := errors.Join(file.Save(content{2, text}), file.Decode(&have)); err != nil || have.Text != text {
			t.Errorf("read again: %q, %v", have.Text, err)
		}
		if info, err := os.Lstat(path); err != nil || info.Mode() != 0o640 {
			t.Errorf("%v, %v", info, err)
		}
		if all, err := os.ReadDir(filepath.Dir(path)); err != nil || len(all) != 1 {
			t.Errorf("there are %v, %v", all, err)
		}
		if err := os.WriteFile(leftover, []byte("ha"), 0o600); err != nil { // for the next one
			t.Fatal(err)
		}
	}
	onFull := file
	onFull.Disk = full{}
	for what, c := range map[string]struct {
		err  error
		kind fault.Kind
		want string
	}{
		"no space":  {onFull.Save(content{2, "x"}), fault.CannotWrite, "cannot write /var/state: "},
		"too large": {file.Save(content{2, strings.Repeat("x", 100)}), fault.Refused, "cannot write /var/state: it would have 132 bytes, at most 100 are possible"},
	} {
		if fault.KindOf(c.err) != c.kind || !strings.Contains(c.err.Error(), c.want) {
			t.Errorf("%s: %v", what, c.err)
		}
	}
	if data, err := os.ReadFile(path); err != nil || !strings.Contains(string(data), "two") {
		t.Errorf("there is %s, %v", data, err)
	}
	for range 2 { // the second time there is nothing
		if err := errors.Join(os.WriteFile(leftover, []byte("ha"), 0o600), file.Remove()); err != nil {
			t.Error(err)
		}
		if all, err := os.ReadDir(filepath.Dir(path)); err != nil || len(all) != 0 {
			t.Errorf("there are %v, %v", all, err)
		}
	}
}

// TestReadSettings: an administrator's file may be a link, but must be a regular file.
func TestReadSettings(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x")
	for target, regular := range map[string]bool{"y": true, "/dev/zero": false, ".": false} {
		if err := errors.Join(os.RemoveAll(path), os.WriteFile(filepath.Join(filepath.Dir(path), "y"), []byte("y"), 0o600), os.Symlink(target, path)); err != nil {
			t.Fatal(err)
		}
		got, err := hostfiles.ReadSettings("/", path)
		if (err == nil) != regular || regular && !bytes.Equal(got, []byte("y")) {
			t.Errorf("a link to %s: %q, %v", target, got, err)
		}
	}
}

// TestCheckName has the limits of file systems on Linux.
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
