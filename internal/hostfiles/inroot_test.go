package hostfiles_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"machine-pivot/internal/hostfiles"
)

// TestLocate: what a link leads to is below the root, be it there or not, except in the directories that a start
// brings into the system.
func TestLocate(t *testing.T) {
	root := t.TempDir()
	for _, dir := range []string{"etc", "run/there", "dev"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for link, to := range map[string]string{
		"null": "/dev/null", "secret": "/run/secrets/a", "relative": "../../../run/secrets/a", "there": "/run/there", "chain": "/etc/secret",
		"stale": "/opt/a", "runner": "/runner/a", "dir": "/run/dir", "back": "/run/dir/../../opt/a",
	} {
		if err := os.Symlink(to, filepath.Join(root, "etc", link)); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]string{
		"/etc/null": "/dev/null", "/etc/secret": "/run/secrets/a", "/etc/relative": "/run/secrets/a", "/etc/there": root + "/run/there",
		"/etc/chain": "/run/secrets/a", "/etc/stale": root + "/opt/a", "/etc/runner": root + "/runner/a", "/etc/dir/file": "/run/dir/file",
		"/etc/back": root + "/opt/a", "/etc/none": root + "/etc/none", "/run/secrets/a": root + "/run/secrets/a", "/etc": root + "/etc",
	} {
		if got, err := hostfiles.Locate(root+"/", name); err != nil || got != want {
			t.Errorf("%s: %s, %v, want %s", name, got, err, want)
		}
	}
	if got, err := hostfiles.Locate("/", "/etc//none/"); err != nil || got != "/etc/none" {
		t.Errorf("in the running system: %s, %v", got, err)
	}
	if got, err := hostfiles.Locate("/", "root/etc"); err != nil || got != "root/etc" {
		t.Errorf("in the working directory: %s, %v", got, err)
	}
}

func TestResolveIn(t *testing.T) {
	root := t.TempDir()
	for _, dir := range []string{"usr/bin", "etc"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(root+"/usr/bin/tool", nil, 0o755); err != nil {
		t.Fatal(err)
	}
	for link, to := range map[string]string{
		"bin": "usr/bin", "sbin": "/usr/bin", "etc/tool": "../../../bin/tool", "etc/far": "/etc/tool", "loop": "/loop", "etc/out": "/proc/self/exe",
	} {
		if err := os.Symlink(to, filepath.Join(root, link)); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"/usr/bin/tool", "bin/tool", "/sbin/tool", "/etc/tool", "/etc/far", "/../../bin//./tool"} {
		if got, err := hostfiles.ResolveIn(root, name); err != nil || got != root+"/usr/bin/tool" {
			t.Errorf("%s: %s, %v", name, got, err)
		}
	}
	for _, name := range []string{"/nothing", "/etc/out", "/usr/bin/tool/x"} {
		if got, err := hostfiles.ResolveIn(root, name); err == nil {
			t.Errorf("%s: %s", name, got)
		}
	}
	if _, err := hostfiles.ResolveIn(root, "/nothing"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("what is not there: %v", err)
	}
	linked := filepath.Join(t.TempDir(), "root")
	if err := os.Symlink(root, linked); err != nil {
		t.Fatal(err)
	}
	if got, err := hostfiles.ResolveIn(linked, "/sbin/tool"); err != nil || got != linked+"/usr/bin/tool" {
		t.Errorf("in a root that is a link: %s, %v", got, err)
	}
	if _, err := hostfiles.ResolveIn(root, "/loop"); err == nil {
		t.Error("a loop has an end")
	}
}
