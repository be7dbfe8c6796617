package host_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"machine-pivot/internal/host"
	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/ostree"
	"machine-pivot/test/tools/need"
)

const (
	loaderFeatures = "/sys/firmware/efi/efivars/LoaderFeatures-4a67b082-0a4c-41cf-b6c7-440b29bb8c4f"
	loaderOnce     = "/sys/firmware/efi/efivars/LoaderEntryOneShot-4a67b082-0a4c-41cf-b6c7-440b29bb8c4f"
)

// Output of grub2-mkconfig and bootupd, reduced to the selection of entries.
const (
	grubMade   = "load_env\nif [ \"${next_entry}\" ] ; then\n   set default=\"${next_entry}\"\n   save_env next_entry\nfi\ninsmod blscfg\nblscfg\n"
	grubStatic = "load_env\nblscfg\nif [ -f $prefix/custom.cfg ]; then\n  source $prefix/custom.cfg\nfi\n"
)

// TestOneShot (P59): which boot loaders can start an entry once, and the commands for it.
func TestOneShot(t *testing.T) {
	for name, c := range map[string]struct {
		files  map[string]string
		links  map[string]string // targets by path
		file   string            // of the boot entry
		writes error             // what GRUB's file system is refused for
		why    string
	}{
		"a loader of the boot loader interface": {
			files: announced(),
			file:  "ostree-2.conf",
		},
		"one of an entry whose boots are counted":            {files: announced(), file: "ostree-2+3.conf"},
		"one of an entry whose boots are counted, and tried": {files: announced(), file: "ostree-2+2-1.conf"},
		"one that cannot": {files: map[string]string{loaderFeatures: "\x06\x00\x00\x00\x07\x00\x00\x00\x00\x00\x00\x00"}, why: "no boot loader is known"},
		"GRUB whose static configuration sources nothing":  {files: map[string]string{"/boot/grub2/grub.cfg": "load_env\nblscfg\n# source $prefix/custom.cfg\n", "/boot/grub2/grubenv": "x"}, why: "sources neither custom.cfg nor user.cfg"},
		"GRUB on a file system to which it does not write": {files: map[string]string{"/boot/grub2/grub.cfg": grubStatic}, writes: errors.New("GRUB cannot write"), why: "GRUB cannot write"},
		"petitboot, which reads GRUB's configuration":      {files: map[string]string{"/boot/grub2/grub.cfg": grubStatic, "/sys/firmware/opal/": ""}, why: "petitboot is not known"},
		"GRUB with entries inside":                         {files: map[string]string{"/boot/grub2/grub.cfg": "menuentry\nsave_env next_entry\n"}, why: `no "blscfg"`},
		"GRUB without environment":                         {files: map[string]string{"/boot/grub2/grub.cfg": grubMade}, why: "cannot look at GRUB's environment"},
		"GRUB whose environment is a link":                 {files: map[string]string{"/boot/grub2/grub.cfg": grubMade}, links: map[string]string{"/boot/grub2/grubenv": "../efi/grubenv"}, why: "grubenv: it is no regular file"},
		"GRUB whose environment is none":                   {files: map[string]string{"/boot/grub2/grub.cfg": grubMade, "/boot/grub2/grubenv": "x"}, why: "it does not begin with"},
		"GRUB whose environment is full":                   {files: map[string]string{"/boot/grub2/grub.cfg": grubMade, "/boot/grub2/grubenv": block("a=" + strings.Repeat("x", 980) + "\n")}, why: "it has no room"},
		"GRUB with a file for the hook that is a link":     {files: map[string]string{"/boot/grub2/grub.cfg": grubStatic}, links: map[string]string{"/boot/grub2/custom.cfg": "admin.cfg"}, why: "custom.cfg: it is no regular file"},
		"a loader of the interface without bootctl":        {files: map[string]string{loaderFeatures: announced()[loaderFeatures]}, why: "there is no /usr/bin/bootctl"},
		"another or none":                                  {why: "no boot loader is known"},
		"a variable that is empty":                         {files: map[string]string{loaderFeatures: ""}, why: "no boot loader is known"},
	} {
		t.Run(name, func(t *testing.T) {
			h := machine(t, c.files)
			h.Root = onDisk(t, h.Root)
			for path, target := range c.links {
				writeLink(t, h.Path(path), target)
			}
			if c.writes != nil {
				h.GrubWrites = func(string) error { return c.writes }
			}
			var asked []string
			h.Run = func(_ context.Context, argv ...string) ([]byte, error) {
				asked = append(asked, strings.ReplaceAll(strings.Join(argv, " "), h.Root, "ROOT"))
				return nil, os.WriteFile(h.Path(loaderOnce), []byte(argv[2]), 0o600)
			}
			_, err := h.OneShot()
			if c.why != "" {
				if err == nil || !strings.Contains(err.Error(), c.why) || h.BootOnce(t.Context(), ostree.Deployment{}) == nil {
					t.Errorf("error %v, want %q", err, c.why)
				}
				if err := h.ForgetOnce(t.Context()); err != nil || len(asked) > 0 {
					t.Errorf("what was not set is forgotten: asked %q, %v", asked, err)
				}
				return
			}
			d := ostree.Deployment{Entry: ostree.BootEntry{File: c.file}}
			if err := errors.Join(err, h.BootOnce(t.Context(), d), h.ForgetOnce(t.Context())); err != nil || !slices.Equal(asked, []string{"bootctl set-oneshot ostree-2.conf", "bootctl set-oneshot "}) {
				t.Errorf("asked %q, %v", asked, err)
			}
		})
	}
}

// TestOneShotReadOnly: where the EFI variables cannot be written, which a unit's sandbox may cause, no entry
// can be started once, and that is known before a commit. An entry that is set nevertheless is not forgotten silently.
func TestOneShotReadOnly(t *testing.T) {
	need.Root(t)
	h := machine(t, announced())
	efivars := h.Path(filepath.Dir(loaderFeatures))
	if err := unix.Mount("tmpfs", efivars, "tmpfs", 0, ""); err != nil {
		need.Lacking(t, "needs to mount a tmpfs: "+err.Error())
	}
	t.Cleanup(func() { _ = unix.Unmount(efivars, unix.MNT_DETACH) })
	var asked []string
	h.Run = func(_ context.Context, argv ...string) ([]byte, error) {
		asked = append(asked, strings.Join(argv, " "))
		return nil, unix.EROFS
	}
	for _, name := range []string{loaderFeatures, loaderOnce} {
		if err := os.WriteFile(h.Path(name), []byte(announced()[loaderFeatures]), 0o644); err != nil {
			t.Fatal(err)
		}
		err := unix.Mount("", efivars, "", unix.MS_REMOUNT|unix.MS_RDONLY, "")
		if _, oerr := h.OneShot(); err != nil || !errors.Is(oerr, unix.EROFS) {
			t.Errorf("error %v, want that the file system is read-only (%v)", oerr, err)
		}
		if err := h.ForgetOnce(t.Context()); (name == loaderOnce) != errors.Is(err, unix.EROFS) || (name == loaderOnce) != (len(asked) == 1) {
			t.Errorf("forgotten, with %s: asked %q, %v", filepath.Base(name), asked, err)
		}
		if err := unix.Mount("", efivars, "", unix.MS_REMOUNT, ""); err != nil {
			t.Fatal(err)
		}
	}
}

// announced are the files of a machine with a boot loader that announces that it can start an entry once.
func announced() map[string]string {
	return map[string]string{loaderFeatures: "\x06\x00\x00\x00\x18\x00\x00\x00\x00\x00\x00\x00", "/usr/bin/bootctl": ""}
}

func writeLink(t *testing.T, path, target string) {
	t.Helper()
	real := filepath.Join(filepath.Dir(path), target)
	err := errors.Join(os.MkdirAll(filepath.Dir(real), 0o755), os.WriteFile(real, []byte(block("")), 0o644), os.Symlink(target, path))
	if err != nil {
		t.Fatal(err)
	}
}

// onDisk copies a directory to a file system that GRUB could write to. It skips the test if
// there is none.
func onDisk(t *testing.T, dir string) string {
	t.Helper()
	parent, err := os.MkdirTemp("/var/tmp", "pivot-once-*")
	if err != nil {
		need.Lacking(t, "needs a directory on a disk: "+err.Error())
	}
	t.Cleanup(func() { _ = os.RemoveAll(parent) })
	copied := filepath.Join(parent, "root")
	if err := os.CopyFS(copied, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	return copied
}

// block is an environment block as grub-editenv creates it, with the given lines.
func block(lines string) string {
	text := "# GRUB Environment Block\n" + lines
	return text + strings.Repeat("#", 1024-len(text))
}

// TestOneShotByGRUB (P59): the entry is named where the configuration looks for it, and nothing is
// left of that after the undo. What others have written there stays as it is.
func TestOneShotByGRUB(t *testing.T) {
	const admins = "set timeout=7\n# no newline at the end"
	for name, c := range map[string]struct {
		config, dir, loader string
		reads               string // the file that GRUB reads the name from
		want                string
		changes             string // another file that is changed
	}{
		"of Fedora":                        {grubMade, "grub2", "GRUB's next_entry", "grubenv", block("a=b\nnext_entry=ostree-2+3\n"), ""},
		"of Debian":                        {grubMade, "grub", "GRUB's next_entry", "grubenv", block("a=b\nnext_entry=ostree-2+3\n"), ""},
		"of bootupd":                       {grubStatic, "grub2", "a hook in GRUB's custom.cfg", "pivot.env", block("pivot_once=ostree-2+3\n"), "custom.cfg"},
		"of an older coreos-assembler":     {"source $prefix/user.cfg\nblscfg\n", "grub2", "a hook in GRUB's user.cfg", "pivot.env", block("pivot_once=ostree-2+3\n"), "user.cfg"},
		"of bootupd, with the user's file": {"  source ${prefix}/user.cfg\n" + grubStatic, "grub2", "a hook in GRUB's custom.cfg", "pivot.env", block("pivot_once=ostree-2+3\n"), "custom.cfg"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := "/boot/" + c.dir + "/"
			before := map[string]string{dir + "grub.cfg": c.config, dir + "grubenv": block("a=b\n"), dir + "custom.cfg": admins, dir + "user.cfg": admins}
			h := machine(t, before)
			h.Root = onDisk(t, h.Root)
			settled := 0
			h.Run = func(_ context.Context, argv ...string) ([]byte, error) {
				settled++
				if want := "/bin/sh -c"; !strings.HasPrefix(strings.Join(argv, " "), want) || argv[len(argv)-1] != "/boot/"+c.dir {
					t.Errorf("asked %q, want that the file system of /boot/%s is frozen", argv, c.dir)
				}
				return nil, nil
			}
			loader, err := h.OneShot()
			if err != nil || loader != c.loader {
				t.Fatalf("%q, %v", loader, err)
			}
			d := ostree.Deployment{Entry: ostree.BootEntry{File: "ostree-2+3.conf"}}
			for range 2 { // the second time it replaces the first
				if err := h.BootOnce(t.Context(), d); err != nil {
					t.Fatal(err)
				}
			}
			if text, err := os.ReadFile(h.Path(dir + c.reads)); err != nil || string(text) != c.want {
				t.Errorf("%s has %q (%v)", c.reads, text, err)
			}
			if settled == 0 {
				t.Error("the file system's journal was not emptied")
			}
			for path, text := range before {
				now, err := os.ReadFile(h.Path(path))
				if base := filepath.Base(path); base != c.reads && (err != nil || !strings.HasPrefix(string(now), text) || len(now) > len(text) != (base == c.changes)) {
					t.Errorf("%s has %q (%v)", path, now, err)
				}
			}
			if err := h.ForgetOnce(t.Context()); err != nil {
				t.Fatal(err)
			}
			for path, text := range before {
				if now, err := os.ReadFile(h.Path(path)); err != nil || string(now) != text {
					t.Errorf("afterwards, %s has %q (%v)", path, now, err)
				}
			}
			if names, _ := filepath.Glob(h.Path(dir + "*")); len(names) != len(before) {
				t.Errorf("afterwards, there are %q", names)
			}
		})
	}
}

// TestOneShotFails: what GRUB could not use, or could not be removed again, is refused and stays as it
// is, and the next boot is the default.
func TestOneShotFails(t *testing.T) {
	for name, c := range map[string]struct {
		files map[string]string
		file  string
		why   string
	}{
		"a name that GRUB would not find": {file: "my entry.conf", why: "GRUB would not find that name"},
		"half a hook":                     {files: map[string]string{"custom.cfg": "a\n### BEGIN pivot: start one entry once; pivot removes this ###\nb\n"}, file: "ostree-2.conf", why: "a begin and no end"},
		"a directory in its place":        {files: map[string]string{"custom.cfg/a": ""}, file: "ostree-2.conf", why: "it is no regular file"},
	} {
		t.Run(name, func(t *testing.T) {
			files := map[string]string{"/boot/grub2/grub.cfg": grubStatic}
			for base, text := range c.files {
				files["/boot/grub2/"+base] = text
			}
			h := machine(t, files)
			h.Root = onDisk(t, h.Root)
			h.Run = func(context.Context, ...string) ([]byte, error) { return nil, nil }
			d := ostree.Deployment{Entry: ostree.BootEntry{File: c.file}}
			if err := h.BootOnce(t.Context(), d); err == nil || !strings.Contains(err.Error(), c.why) {
				t.Errorf("error %v, want %q", err, c.why)
			}
			if _, err := h.OneShot(); c.files != nil && (err == nil || !strings.Contains(err.Error(), c.why)) {
				t.Errorf("before a commit: error %v, want %q", err, c.why)
			}
			for path, text := range files {
				if now, err := os.ReadFile(h.Path(path)); err != nil || string(now) != text {
					t.Errorf("%s has %q (%v)", path, now, err)
				}
			}
			if _, err := os.Stat(h.Path("/boot/grub2/pivot.env")); err == nil {
				t.Error("an environment block is left")
			}
		})
	}
}

// killedBySync is a disk that kills its user during the sync of a directory from which something was removed.
type killedBySync struct {
	hostfiles.Disk
	gone   string
	killed bool
	synced []string
}

func (k *killedBySync) Sync(path string) error {
	if _, err := os.Lstat(k.gone); !k.killed && err != nil && path == filepath.Dir(k.gone) {
		k.killed = true
		return errors.New("killed")
	}
	err := k.Disk.Sync(path)
	if err == nil {
		k.synced = append(k.synced, path)
	}
	return err
}

// TestEndOnceKilled: a run that is killed between the removal and its sync leaves nothing to remove. The next one syncs
// the directory all the same, so that no power cut brings back what was removed. Where GRUB has no directory, there is
// nothing to do.
func TestEndOnceKilled(t *testing.T) {
	h := machine(t, map[string]string{"/boot/grub2/grub.cfg": grubStatic})
	h.Root = onDisk(t, h.Root)
	h.Run = func(context.Context, ...string) ([]byte, error) { return nil, nil }
	if err := h.BootOnce(t.Context(), ostree.Deployment{Entry: ostree.BootEntry{File: "ostree-2.conf"}}); err != nil {
		t.Fatal(err)
	}
	disk := &killedBySync{Disk: h.Disk, gone: h.Path("/boot/grub2/pivot.env")}
	h.Disk = disk
	if err := h.EndOnce(t.Context()); err == nil {
		t.Error("was not killed")
	}
	disk.synced = nil
	if err := h.EndOnce(t.Context()); err != nil || !slices.Equal(disk.synced, []string{h.Path("/boot/grub2")}) {
		t.Errorf("synced %q, %v", disk.synced, err)
	}
}

// TestUptime: it is the kernel's uptime and advances.
func TestUptime(t *testing.T) {
	h := host.New("/")
	first, err := h.Uptime()
	second, err2 := h.Uptime()
	if errors.Join(err, err2) != nil || first <= 0 || second < first {
		t.Errorf("%v, then %v: %v", first, second, errors.Join(err, err2))
	}
}
