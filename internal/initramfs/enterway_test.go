package initramfs_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"machine-pivot/internal/initramfs"
	"machine-pivot/test/tools/need"
)

// wayNamespace makes TestWay run its cases: it is set in a private mount namespace.
const wayNamespace = "TEST_ENTER_NAMESPACE"

// TestWay (P96): the way enters the deployment. Ended before any call, the old root is whole until it is unmounted, and
// no mount is left of the new one.
func TestWay(t *testing.T) {
	need.Root(t)
	if os.Getenv(wayNamespace) == "" {
		cmd := exec.Command("unshare", "--mount", "--propagation", "private", os.Args[0], "-test.run=^TestWay$", "-test.v")
		cmd.Env = append(os.Environ(), wayNamespace+"=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	calls := goWay(t, -1)
	if len(calls) < 10 {
		t.Fatalf("the way has the calls %q", calls)
	}
	for i := range calls {
		goWay(t, i)
	}
}

// goWay takes the way on a new machine until the call with the given number, -1: to its end. It returns the calls.
func goWay(t *testing.T, until int) (calls []string) {
	t.Helper()
	m := newTestInitramfs(t)
	mounts := m.mounts(t)
	ctx, end := context.WithCancelCause(t.Context())
	defer end(nil)
	cut := errors.New("cut")
	way := initramfs.NewWay(initramfs.EnterRequest{Deployment: m.id(newSum), Link: "/ostree/boot.1/os/77/0"})
	way.Stop = func(_ context.Context, unit string) error {
		m.stopped = append(m.stopped, unit)
		return nil
	}
	way.Root, way.Run, way.Cmdline, way.PrepareRoot, way.Scratch = m.path("sysroot"), m.path("run"), m.path("cmdline"), m.path("prepare-root"), m.path("next")
	way.Before = func(call string) {
		if len(calls) == until {
			end(cut)
		}
		if call != "" {
			calls = append(calls, call)
		}
	}
	err := way.Go(ctx)
	if until < 0 {
		if err != nil {
			t.Fatal(err)
		}
		m.expect(t, "new", newSum)
		if strings.Contains(m.mounts(t), ".private") {
			t.Errorf("a mount of the old root is left:\n%s", m.mounts(t))
		}
		if m.read(t, "run/pivot/entered") == "" || len(m.stopped) != 3 {
			t.Errorf("stopped %q", m.stopped)
		}
		return calls
	}
	if !errors.Is(err, cut) {
		t.Fatalf("cut before call %d: %v", until, err)
	}
	switch call := calls[until]; call {
	case "mount the new root": // without a root
	case "replace libostree's files in /run": // with libostree's files of the old one
		m.expect(t, "new", oldSum)
	default:
		m.expect(t, "old", oldSum)
		if now := m.mounts(t); now != mounts {
			t.Errorf("cut before %q, the mounts are\n%s\nand were\n%s", call, now, mounts)
		}
	}
	return calls
}

const oldSum, newSum = "a", "b"

// testInitramfs is a directory that looks like an initramfs with a mounted system.
type testInitramfs struct {
	dir     string
	stopped []string
}

func newTestInitramfs(t *testing.T) *testInitramfs {
	t.Helper()
	m := &testInitramfs{dir: t.TempDir()}
	for _, dir := range []string{"physical", "sysroot", "run"} {
		must(t, os.Mkdir(m.path(dir), 0o755))
	}
	for _, dir := range []string{"physical", "run"} {
		must(t, unix.Mount("tmpfs", m.path(dir), "tmpfs", 0, ""))
		t.Cleanup(func() { must(t, unix.Unmount(m.path(dir), unix.MNT_DETACH)) })
	}
	for version, sum := range map[string]string{"old": oldSum, "new": newSum} {
		m.write(t, m.deployment(sum)+"/usr/lib/os-release", version)
		for _, dir := range []string{"etc", "run", "sysroot"} {
			must(t, os.MkdirAll(m.path(m.deployment(sum)+"/"+dir), 0o755))
		}
	}
	must(t, os.MkdirAll(m.path("physical/ostree/repo"), 0o755))
	must(t, os.MkdirAll(m.path("physical/ostree/boot.1/os/77"), 0o755))
	must(t, os.Symlink("../../../deploy/os/deploy/"+strings.Repeat(newSum, 64)+".0", m.path("physical/ostree/boot.1/os/77/0")))
	m.write(t, "cmdline", "quiet ostree=/ostree/boot.0/os/77/0 rw\n")
	m.write(t, "run/ostree-booted", "")
	m.write(t, "run/ostree/of", oldSum)
	must(t, os.MkdirAll(m.path("run/ostree/.private/lower"), 0o755)) // as with composefs
	must(t, unix.Mount("tmpfs", m.path("run/ostree/.private/lower"), "tmpfs", 0, ""))
	// Like the original, it judges by the command line alone, and fails if /run/ostree exists.
	m.write(t, "prepare-root", fmt.Sprintf(`#!/bin/sh -e
[ ! -e %[1]s/run/ostree ]
link=$(sed 's/.*ostree=\([^ ]*\).*/\1/' %[1]s/cmdline)
mkdir %[1]s/run/made
mount --bind "$(readlink -f "$1$link")" %[1]s/run/made
mount --bind "$1" %[1]s/run/made/sysroot
mount --rbind %[1]s/run/made "$1"
umount -l %[1]s/run/made
mkdir %[1]s/run/ostree
echo %[2]s >%[1]s/run/ostree/of
: >%[1]s/run/ostree-booted
`, m.dir, newSum))
	must(t, os.Chmod(m.path("prepare-root"), 0o755))
	must(t, unix.Mount(m.path(m.deployment(oldSum)), m.path("sysroot"), "", unix.MS_BIND, ""))
	t.Cleanup(func() { _ = unix.Unmount(m.path("sysroot"), unix.MNT_DETACH) }) // without a root it is not mounted
	must(t, unix.Mount(m.path("physical"), m.path("sysroot/sysroot"), "", unix.MS_BIND, ""))
	return m
}

func (m *testInitramfs) path(name string) string { return filepath.Join(m.dir, name) }

func (m *testInitramfs) deployment(sum string) string {
	return "physical/ostree/deploy/os/deploy/" + strings.Repeat(sum, 64) + ".0"
}

func (m *testInitramfs) id(sum string) string { return "os-" + strings.Repeat(sum, 64) + ".0" }

func (m *testInitramfs) write(t *testing.T, name, content string) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Dir(m.path(name)), 0o755))
	must(t, os.WriteFile(m.path(name), []byte(content), 0o644))
}

func (m *testInitramfs) read(t *testing.T, name string) string {
	t.Helper()
	content, err := os.ReadFile(m.path(name))
	must(t, err)
	return string(content)
}

// expect checks which version is the root, and which one libostree has the files of in /run.
func (m *testInitramfs) expect(t *testing.T, version, run string) {
	t.Helper()
	if root, of := m.read(t, "sysroot/usr/lib/os-release"), strings.TrimSpace(m.read(t, "run/ostree/of")); root != version || of != run {
		t.Errorf("the root is %s, with libostree's files of %s; want %s, %s", root, of, version, run)
	}
	if line := m.read(t, "cmdline"); !strings.Contains(line, "boot.0") {
		t.Errorf("the command line is %q", line)
	}
}

// mounts returns the mount points below the directory, one a line.
func (m *testInitramfs) mounts(t *testing.T) string {
	t.Helper()
	all, err := mountinfo.GetMounts(mountinfo.PrefixFilter(m.dir))
	must(t, err)
	var lines []string
	for _, mount := range all {
		lines = append(lines, mount.Mountpoint)
	}
	return strings.Join(lines, "\n")
}
