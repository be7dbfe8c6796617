package hostfiles_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"machine-pivot/hostfiles"
	"machine-pivot/test/need"
)

func TestWithOverlay(t *testing.T) {
	need.Root(t)
	etc := t.TempDir()
	old := filepath.Join(etc, "kubernetes/openshift-workload-pinning")
	mkdir(t, filepath.Dir(old))
	write(t, old, "old")
	outside := filepath.Join(t.TempDir(), "outside")
	write(t, outside, "untouched")
	if err := os.Symlink(outside, filepath.Join(etc, "link")); err != nil {
		t.Fatal(err)
	}
	files := []hostfiles.File{
		{Path: "/etc/kubernetes/openshift-workload-pinning", Mode: 0o644, Content: []byte("new")},
		{Path: "/etc/crio/crio.conf.d/50-x.conf", Mode: 0o600, UID: 12, GID: 13, Content: []byte("x")},
		{Path: "/etc/link", Mode: 0o644, Content: []byte("no longer a link")},
	}
	copied := t.TempDir()
	err := hostfiles.WithOverlay(etc, files, func() error {
		return exec.Command("cp", "-a", etc+"/.", copied).Run()
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		got, ok, err := hostfiles.Read(filepath.Dir(copied), "/"+filepath.Base(copied)+f.Path[len("/etc"):])
		got.Path = f.Path
		if err != nil || !ok || !got.Equal(f) {
			t.Errorf("inside, %s is %+v (%v, %v)", f.Path, got, ok, err)
		}
	}
	if got := read(t, old); got != "old" {
		t.Errorf("outside, the old file is %q", got)
	}
	if _, err := os.Lstat(filepath.Join(etc, "crio")); !os.IsNotExist(err) {
		t.Errorf("outside, there is a new directory (%v)", err)
	}
	if got := read(t, outside); got != "untouched" {
		t.Errorf("a link led out: %q", got)
	}
	if left, _ := filepath.Glob("/run/pivot-etc-*"); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestWithOverlayReportsBadPaths(t *testing.T) {
	need.Root(t)
	ran := false
	err := hostfiles.WithOverlay(t.TempDir(), []hostfiles.File{{Path: "/usr/lib/x"}}, func() error { ran = true; return nil })
	if err == nil || ran {
		t.Errorf("error %v, ran %v", err, ran)
	}
}

func TestOpenWritable(t *testing.T) {
	need.Root(t)
	mount := t.TempDir()
	mkdir(t, filepath.Join(mount, "dir"))
	for _, argv := range [][]string{{"mount", "--bind", mount, mount}, {"mount", "-o", "remount,bind,ro,nosuid", mount}} {
		if out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", argv, err, out)
		}
	}
	t.Cleanup(func() {
		if out, err := exec.Command("umount", mount).CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
	})
	if err := os.WriteFile(filepath.Join(mount, "dir/x"), nil, 0o644); !errors.Is(err, syscall.EROFS) {
		t.Fatalf("the mount is not read-only (%v)", err)
	}
	dir, err := hostfiles.OpenWritable(mount, filepath.Join(mount, "dir"))
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	view := fmt.Sprintf("/proc/self/fd/%d", dir.Fd())
	write(t, filepath.Join(view, "a"), "a")
	if err := os.Rename(filepath.Join(view, "a"), filepath.Join(view, "b")); err != nil {
		t.Error(err)
	}
	if got := read(t, filepath.Join(mount, "dir/b")); got != "a" {
		t.Errorf("the host sees %q", got)
	}
	if err := os.WriteFile(filepath.Join(mount, "dir/x"), nil, 0o644); !errors.Is(err, syscall.EROFS) {
		t.Errorf("the host's own mount became writable (%v)", err)
	}
}

func TestReplaceLeavesNothingElse(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	for _, content := range []string{"one", "two"} {
		if err := hostfiles.Replace(hostfiles.OS{}, path, []byte(content), 0o640); err != nil {
			t.Fatal(err)
		}
		if got := read(t, path); got != content {
			t.Errorf("content %q, want %q", got, content)
		}
	}
	if err := hostfiles.Replace(hostfiles.OS{}, filepath.Join(dir, "f/g"), nil, 0o644); err == nil {
		t.Error("no error below a file")
	}
	entries, _ := os.ReadDir(dir)
	if len(entries) != 1 {
		t.Errorf("left behind: %v", entries)
	}
}

func TestReadTellsAbsentFromUnusable(t *testing.T) {
	root := t.TempDir()
	write(t, filepath.Join(root, "file"), "x")
	for path, wantErr := range map[string]bool{"/absent": false, "/file/below": false, "/": true} {
		if _, ok, err := hostfiles.Read(root, path); ok || (err != nil) != wantErr {
			t.Errorf("Read(%s) = %v, %v", path, ok, err)
		}
	}
}

func mkdir(t *testing.T, path string) {
	t.Helper()
	if err := os.MkdirAll(path, 0o755); err != nil {
		t.Fatal(err)
	}
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
