package hostfiles_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"machine-pivot/internal/hostfiles"
	"machine-pivot/test/tools/need"
)

func TestWithOverlays(t *testing.T) {
	need.Root(t)
	// Overlayfs does not accept a name with a comma, so a copy is mounted instead.
	for _, name := range []string{"etc", "a,copy"} {
		t.Run(name, func(t *testing.T) {
			etc := filepath.Join(t.TempDir(), name)
			mkdir(t, etc)
			withOverlays(t, etc)
		})
	}
}

func withOverlays(t *testing.T, etc string) {
	old := filepath.Join(etc, "kubernetes/openshift-workload-pinning")
	mkdir(t, filepath.Dir(old))
	write(t, old, "old")
	outside := filepath.Join(t.TempDir(), "outside")
	write(t, outside, "untouched")
	if err := os.Symlink(outside, filepath.Join(etc, "link")); err != nil {
		t.Fatal(err)
	}
	files := []hostfiles.File{
		hostfiles.NewFile("/etc/kubernetes/openshift-workload-pinning", 0o644, []byte("new")),
		owned(hostfiles.NewFile("/etc/crio/crio.conf.d/50-x.conf", 0o600, []byte("x")), 12, 13),
		owned(hostfiles.NewDirectory("/etc/dir", 0o1750), 3, 4),
		hostfiles.NewFile("/etc/dir/below/file", 0o640, []byte("y")),
		owned(hostfiles.NewLink("/etc/dir/link", "../nowhere"), 5, 6),
		hostfiles.NewDirectory("/etc/dir/below", 0o500),
		owned(hostfiles.NewDirectory("/etc/there", 0o700), 7, 8),
		hostfiles.NewDirectory("/etc/was-file", 0o755),
		hostfiles.NewLink("/etc/was-dir", "there"),
		hostfiles.NewFile("/etc/link", 0o644, []byte("no longer a link")),
	}
	mkdir(t, filepath.Join(etc, "there/full"))
	write(t, filepath.Join(etc, "was-file"), "x")
	mkdir(t, filepath.Join(etc, "was-dir"))
	special := filepath.Join(etc, "special")
	mkdir(t, special)
	for _, argv := range [][]string{
		{"sh", "-c", "cd '" + special + "' && echo x >setid && chown 7:8 setid && chmod 4750 setid"},
		{"touch", "-d", "2020-01-02 03:04:05Z", special + "/setid"}, {"ln", "-s", "/nowhere", special + "/dangling"}, {"mkfifo", special + "/fifo"},
		{"chmod", "0751", special},
	} {
		if out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", argv, err, out)
		}
	}
	if err := unix.Setxattr(special+"/setid", "trusted.pivot", []byte("x\x00y"), 0); err != nil {
		t.Fatal(err)
	}
	before := listing(t, special)
	copied := t.TempDir()
	run := t.TempDir()
	write(t, filepath.Join(run, "lock"), "")
	state := hostfiles.NewFile("/run/x/state", 0o644, []byte("inside"))
	err := hostfiles.WithOverlays(func() error {
		if _, err := os.Lstat(filepath.Join(run, "lock")); !os.IsNotExist(err) {
			t.Errorf("the hidden file is there (%v)", err)
		}
		if got := read(t, filepath.Join(run, "state")); got != "inside" {
			t.Errorf("the second overlay holds %q", got)
		}
		if inside := listing(t, special); inside != before {
			t.Errorf("inside, what was there is\n%s, was\n%s", inside, before)
		}
		return exec.Command("cp", "-a", etc+"/.", copied).Run()
	}, hostfiles.Overlay{Dir: etc, At: "/etc", Files: files},
		hostfiles.Overlay{Dir: run, At: "/run/x", Files: []hostfiles.File{state, hostfiles.Default("/run/x/lock"), hostfiles.Default("/run/x/none"), hostfiles.Default("/run/x/none/below")}})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		got, ok, err := hostfiles.Read(filepath.Dir(copied), "/"+filepath.Base(copied)+f.Path[len("/etc"):])
		got.Path = f.Path
		if err != nil || !ok || got.Entry != f.Entry {
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
	if entries, _ := os.ReadDir(run); len(entries) != 1 || entries[0].Name() != "lock" {
		t.Errorf("outside, the second directory has %v", entries)
	}
	// Only of this process: tests of other packages may have overlays at the same time.
	if left, _ := filepath.Glob(fmt.Sprintf("/run/pivot-overlay-%d-*", os.Getpid())); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestWithOverlaysReportsBadPaths(t *testing.T) {
	need.Root(t)
	ran := false
	work := func() error { ran = true; return nil }
	for _, o := range []hostfiles.Overlay{
		{At: "/etc", Files: []hostfiles.File{hostfiles.NewFile("/usr/lib/x", 0o644, nil)}},
		{At: "/etc", Files: []hostfiles.File{hostfiles.Default("/usr/lib/x")}},
		{At: "/etc", Files: []hostfiles.File{hostfiles.NewFile("/etc/full", 0o644, nil)}},
		{At: "/etc", Files: []hostfiles.File{hostfiles.NewLink("/etc/full", "x")}},
		{At: "/etc", Files: []hostfiles.File{hostfiles.Default("/etc/full")}},
		{At: "/etc", Files: []hostfiles.File{hostfiles.NewFile("/etc/full/file/below", 0o644, nil)}},
		{At: "/etc", Files: []hostfiles.File{hostfiles.NewFile("/etc/out/file", 0o644, nil)}},
		{At: "/etc", Files: []hostfiles.File{{Entry: hostfiles.Entry{Kind: hostfiles.KindOther, Path: "/etc/fifo"}}}},
		{At: "/etc", Files: []hostfiles.File{{Entry: hostfiles.Entry{Path: "/etc/x", User: "root"}}}},
		{At: "/etc", Files: []hostfiles.File{{Entry: hostfiles.Entry{Kind: hostfiles.KindAbsent, Path: "/etc/" + strings.Repeat("x", 300) + "/file"}}}},
		{At: "/etc", Image: "/usr/etc", Files: []hostfiles.File{hostfiles.Default("/etc/" + strings.Repeat("x", 300))}},
		{At: "/etc", Image: "/" + strings.Repeat("x/", 2100), Files: []hostfiles.File{hostfiles.Default("/etc/full")}},
	} {
		o.Dir = t.TempDir()
		mkdir(t, filepath.Join(o.Dir, "full"))
		write(t, filepath.Join(o.Dir, "full/file"), "x")
		if err := os.Symlink("/tmp", filepath.Join(o.Dir, "out")); err != nil {
			t.Fatal(err)
		}
		if err := hostfiles.WithOverlays(work, o); err == nil || ran {
			t.Errorf("%s: error %v, ran %v", o.Files[0].Path, err, ran)
		}
	}
}

func owned(f hostfiles.File, uid, gid int) hostfiles.File {
	f.UID, f.GID = uid, gid
	return f
}

// TestDefault: an entry of KindDefault is replaced by what the image has there, whatever it
// was before.
func TestDefault(t *testing.T) {
	need.Root(t)
	root := t.TempDir()
	etc, image := filepath.Join(root, "etc"), filepath.Join(root, "usr/etc")
	script := `mkdir -p usr/etc/dir/sub etc/dir etc/gone/below etc/unlinked/x
echo default >usr/etc/changed; chmod 640 usr/etc/changed; chown 3:4 usr/etc/changed; echo mine >etc/changed
echo default >usr/etc/removed
echo mine >etc/added; ln -s added etc/link; ln -s changed usr/etc/link
echo default >usr/etc/dir/sub/file; chmod 711 usr/etc/dir; chown 5:6 usr/etc/dir; echo mine >etc/dir/stays
mkdir usr/etc/whole; echo default >usr/etc/whole/file; echo mine >etc/whole
echo mine >etc/gone/below/file; echo mine >etc/unlinked/x/y`
	run(t, root, script)
	entries := func() []hostfiles.File {
		var all []hostfiles.File
		for _, name := range []string{"changed", "removed", "added", "link", "dir", "whole", "gone", "gone/below", "gone/below/file", "unlinked/x/y", "none", "none/below"} {
			all = append(all, hostfiles.Default("/etc/"+name))
		}
		return all
	}
	err := hostfiles.WithOverlays(func() error {
		got := run(t, etc, `find . ! -name . -printf '%P %y %m %U:%G %l\n' | sort; cat changed removed dir/stays whole/file`)
		want := `changed f 640 3:4 
dir d 711 5:6 
dir/stays f 644 0:0 
link l 777 0:0 changed
removed f 644 0:0 
unlinked d 755 0:0 
unlinked/x d 755 0:0 
whole d 755 0:0 
whole/file f 644 0:0 
default
default
mine
default
`
		if got != want {
			t.Errorf("inside it is\n%s\nwant\n%s", got, want)
		}
		return nil
	}, hostfiles.Overlay{Dir: etc, At: "/etc", Image: image, Files: entries()})
	if err != nil {
		t.Fatal(err)
	}
	if got := run(t, etc, "cat changed added whole"); got != "mine\nmine\nmine\n" {
		t.Errorf("outside it is %q", got)
	}
}

// TestAccounts: accounts are in /etc and, on image-based systems, in /usr/lib.
func TestAccounts(t *testing.T) {
	files := map[string]string{
		"etc/passwd":     "root:x:0:0::/root:/bin/sh\ncore:x:1000:1000::/home/core:/bin/sh\ncore:x:7:7:::\n+nis\nbad:x:many:0:::\n",
		"usr/lib/passwd": "chrony:x:994:993::/:/sbin/nologin\ncore:x:5:5:::\n",
		"usr/lib/group":  "chrony:x:993:\n",
	}
	accounts, err := hostfiles.ReadAccounts(func(name string) ([]byte, error) {
		if text, ok := files[name]; ok {
			return []byte(text), nil
		}
		return nil, os.ErrNotExist
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		user, group string
		uid, gid    int
		fails       bool
	}{
		{"core", "chrony", 1000, 993, false},
		{"chrony", "", 994, 12, false},
		{"", "", 11, 12, false},
		{"bad", "", 0, 0, true},
		{"root", "core", 0, 0, true}, // there is no such group
	} {
		e, err := accounts.Owned(hostfiles.Entry{Path: "/etc/x", User: c.user, Group: c.group, UID: 11, GID: 12})
		if (err != nil) != c.fails || err == nil && (e.UID != c.uid || e.GID != c.gid || e.Named()) {
			t.Errorf("%s:%s is %s, %v", c.user, c.group, e, err)
		}
	}
	unreadable := errors.New("unreadable")
	if _, err := hostfiles.ReadAccounts(func(string) ([]byte, error) { return nil, unreadable }); !errors.Is(err, unreadable) {
		t.Errorf("error %v", err)
	}
}

func run(t *testing.T, dir, script string) string {
	t.Helper()
	cmd := exec.Command("sh", "-ec", "umask 022\n"+script)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return string(out)
}

// TestOpenWritable: a mount is read-only, or its file system is, as /boot is on Fedora CoreOS.
func TestOpenWritable(t *testing.T) {
	need.Root(t)
	t.Run("mount", func(t *testing.T) { testOpenWritable(t, "mount --bind . .", "remount,bind,ro,nosuid") })
	t.Run("file system", func(t *testing.T) { testOpenWritable(t, "mount -t tmpfs tmpfs .", "remount,ro,nosuid") })
}

func testOpenWritable(t *testing.T, mounted, options string) {
	mount := t.TempDir()
	run(t, mount, mounted)
	mkdir(t, filepath.Join(mount, "dir"))
	t.Cleanup(func() { run(t, "/", "umount "+mount) })
	run(t, "/", "mount -o "+options+" "+mount)
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

// TestWithTmpfs: a child process can write to a directory that is otherwise read-only, and
// other threads do not see it.
func TestWithTmpfs(t *testing.T) {
	need.Root(t)
	dir := t.TempDir()
	write(t, filepath.Join(dir, "before"), "x")
	if err := unix.Mount(dir, dir, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	if err := unix.Mount("", dir, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	failed := errors.New("failed")
	err := hostfiles.WithTmpfs(dir, func() error {
		out, err := exec.Command("sh", "-c", "cd '"+dir+"' && ls && touch x && stat -c %a . && ls").CombinedOutput()
		if err != nil || string(out) != "1777\nx\n" {
			t.Errorf("%v: %q", err, out)
		}
		seen := make(chan []os.DirEntry)
		go func() { // on another thread
			others, _ := os.ReadDir(dir)
			seen <- others
		}()
		if others := <-seen; len(others) != 1 || others[0].Name() != "before" {
			t.Errorf("others see %v", others)
		}
		return failed
	})
	if !errors.Is(err, failed) {
		t.Errorf("error %v", err)
	}
	ran := false
	if err := hostfiles.WithTmpfs(filepath.Join(dir, "none"), func() error { ran = true; return nil }); err != nil || !ran {
		t.Errorf("without the directory: %v, ran %v", err, ran)
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
	for path, wantErr := range map[string]bool{"/absent": false, "/file/below": false} {
		if _, ok, err := hostfiles.Read(root, path); ok || (err != nil) != wantErr {
			t.Errorf("Read(%s) = %v, %v", path, ok, err)
		}
	}
}

// listing returns the attributes of a directory and its files, and some contents.
func listing(t *testing.T, dir string) string {
	t.Helper()
	out, err := exec.Command("sh", "-c", "cd "+"'"+dir+"'"+" && stat -c '%n %F %a %u %g' . && stat -c '%n %F %a %u %g %s %y' * && readlink dangling && cat setid").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	value := make([]byte, 16)
	n, err := unix.Getxattr(filepath.Join(dir, "setid"), "trusted.pivot", value)
	if err != nil {
		t.Error(err)
	}
	return string(out) + string(value[:max(n, 0)])
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
