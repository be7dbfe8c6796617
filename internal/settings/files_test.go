package settings_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/settings"
	"machine-pivot/test/tools/need"
)

// Paths of files with settings.
const (
	ownMain, runMain, imageMain = "/etc/pivot/firstboot.conf", "/run/pivot/firstboot.conf", "/usr/lib/pivot/firstboot.conf"
	own, run, image             = ownMain + ".d/", runMain + ".d/", imageMain + ".d/"
)

// TestSettingsFiles: files with settings count in systemd's order.
func TestSettingsFiles(t *testing.T) {
	for _, c := range []struct {
		name  string
		files map[string]string // values: text, or "-> TARGET" for a link
		want  settings.Mode     // with reboot-method=kexec in all that count
		kexec bool
	}{
		{"an image's", map[string]string{image + "50.conf": "mode=off"}, "off", false},
		{"an image's main file", map[string]string{imageMain: "mode=off"}, "off", false},
		{"the administrator's main file hides the image's", map[string]string{imageMain: "mode=off\nreboot-method=kexec", ownMain: "mode=system"}, "system", false},
		{"a drop-in overrides the main file, and keeps the rest", map[string]string{ownMain: "mode=off\nreboot-method=kexec", image + "50.conf": "mode=system"}, "system", true},
		{"by name over all directories", map[string]string{own + "10.conf": "mode=off", image + "90.conf": "mode=system"}, "system", false},
		{"the same name", map[string]string{own + "50.conf": "mode=off", run + "50.conf": "mode=system", image + "50.conf": "mode=system\nreboot-method=kexec"}, "off", false},
		{"run over the image's", map[string]string{run + "50.conf": "mode=off", image + "50.conf": "mode=system"}, "off", false},
		{"masked by a link", map[string]string{own + "50.conf": "-> /dev/null", image + "50.conf": "mode=off"}, "initramfs", false},
		{"masked by a relative link", map[string]string{own + "50.conf": "-> ../../../dev/null", image + "50.conf": "mode=off"}, "initramfs", false},
		{"masked by an empty file", map[string]string{run + "50.conf": "", image + "50.conf": "mode=off"}, "initramfs", false},
		{"the main file masked", map[string]string{ownMain: "-> /dev/null", imageMain: "mode=off", image + "50.conf": "reboot-method=kexec"}, "initramfs", true},
		{"a link below the machine's root", map[string]string{own + "50.conf": "-> /usr/share/site.conf", "/usr/share/site.conf": "mode=off"}, "off", false},
		{"a relative link", map[string]string{own + "50.conf": "-> ../../../usr/share/site.conf", "/usr/share/site.conf": "mode=off"}, "off", false},
		{"other names", map[string]string{own + "50": "mode=off", own + ".50.conf": "mode=off", own + "50.conf.rpmsave": "mode=off", own + "50.conf~": "mode=off", "/etc/pivot/other.conf.d/50.conf": "mode=off"}, "initramfs", false},
		{"a key in several files", map[string]string{own + "10.conf": "mode=off", own + "20.conf": "mode=off", ownMain: "mode=off"}, "off", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			want := settings.Default()
			if want.Mode = c.want; c.kexec {
				want.RebootMethod = settings.RebootKexec
			}
			if got, err := settings.Read(withFiles(t, c.files), nil); err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("%+v, %v; want %+v", got, err, want)
			}
		})
	}
}

// withFiles returns the root directory of a machine with files, and links for texts "-> TARGET".
func withFiles(t *testing.T, files map[string]string) (root string) {
	t.Helper()
	root = t.TempDir()
	for name, text := range files {
		name = filepath.Join(root, name)
		err := os.MkdirAll(filepath.Dir(name), 0o755)
		if target, link := strings.CutPrefix(text, "-> "); err == nil && link {
			err = os.Symlink(target, name)
		} else if err == nil {
			err = os.WriteFile(name, []byte(text), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// TestSettingsFilesWrong: what cannot be a file with settings is reported by name, never
// ignored, and neither hangs nor fills the memory.
func TestSettingsFilesWrong(t *testing.T) {
	for _, c := range []struct {
		name, file string
		make       func(name string) error
		want       string
	}{
		{"unknown key", own + "50.conf", text("colour=blue\n"), "/etc/pivot/firstboot.conf.d/50.conf, line 1: there is no setting \"colour\""},
		{"in an image", image + "50.conf", text("\nmode=never\n"), "/usr/lib/pivot/firstboot.conf.d/50.conf, line 2: \"never\" is not allowed"},
		{"twice in one file", own + "50.conf", text("mode=off\nmode=off"), "mode is set on line 1 already"},
		{"a directory", own + "50.conf", func(name string) error { return os.Mkdir(name, 0o755) }, "50.conf: it is not a regular file"},
		{"a pipe", own + "50.conf", func(name string) error { return unix.Mkfifo(name, 0o644) }, "50.conf: it is not a regular file"},
		{"a dangling link", own + "50.conf", func(name string) error { return os.Symlink("/etc/nowhere", name) }, "/etc/nowhere: no such file or directory"},
		{"a loop of links", own + "50.conf", func(name string) error { return os.Symlink("50.conf", name) }, "50.conf: too many links"},
		{"large", own + "50.conf", text(strings.Repeat("# nothing\n", 1<<20/10+1)), "together, with /etc/pivot/firstboot.conf.d/50.conf"},
		{"huge", own + "50.conf", func(name string) error {
			if err := os.WriteFile(name, nil, 0o644); err != nil {
				return err
			}
			return os.Truncate(name, 1<<40)
		}, "50.conf: it has more than 16777216 bytes"},
		{"no directory", "/etc/pivot/firstboot.conf.d", text("mode=off\n"), "firstboot.conf.d: not a directory"},
	} {
		t.Run(c.name, func(t *testing.T) {
			root := withFiles(t, map[string]string{image + "10.conf": "reboot-method=kexec"})
			name := filepath.Join(root, c.file)
			if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := c.make(name); err != nil {
				t.Fatal(err)
			}
			got, err := settings.Read(root, nil)
			if fault.KindOf(err) != fault.BadInput || !strings.Contains(fmt.Sprint(err), c.want) {
				t.Errorf("error %v, want %q", err, c.want)
			}
			if got.RebootMethod != settings.RebootKexec {
				t.Errorf("%+v: the other file does not count", got)
			}
		})
	}
}

func text(text string) func(string) error {
	return func(name string) error { return os.WriteFile(name, []byte(text), 0o644) }
}

// TestSettingsFilesAsSystemd: the same files count, in the same order, as systemd says.
func TestSettingsFilesAsSystemd(t *testing.T) {
	need.Program(t, "systemd-analyze")
	random := rand.New(rand.NewPCG(1, 2))
	for range 30 {
		files := map[string]string{}
		for n, dir := range []string{"/etc", "/run", "/usr/lib"} {
			for m, name := range []string{"firstboot.conf", "firstboot.conf.d/10-a.conf", "firstboot.conf.d/9.conf", "firstboot.conf.d/b.conf", "firstboot.conf.d/B.conf", "firstboot.conf.d/c", "firstboot.conf.d/.d.conf"} {
				id := fmt.Sprintf("%d-%d", n, m)
				text := []string{"fleetlock-id=", "fleetlock-group=", "health=a.service,"}[random.IntN(3)] + id
				switch random.IntN(8) {
				case 0, 1, 2:
					files[dir+"/pivot/"+name] = strings.Replace(text, "service,", "service,b", 1) + map[bool]string{true: ".service"}[strings.HasPrefix(text, "health")] + "\n"
				case 3:
					files[dir+"/pivot/"+name] = ""
				case 4:
					files[dir+"/pivot/"+name] = "-> /dev/null"
				}
			}
		}
		root := withFiles(t, files)
		out, err := exec.Command("systemd-analyze", "cat-config", "--root="+root, "pivot/firstboot.conf").Output()
		if err != nil && len(out) > 0 {
			t.Fatal(err)
		}
		// One file with the same lines. No file has more than one.
		last := map[string]string{}
		for line := range bytes.Lines(out) {
			if key, _, ok := strings.Cut(string(line), "="); ok && !bytes.HasPrefix(line, []byte("#")) {
				last[key] = string(line)
			}
		}
		whole := ""
		for _, line := range last {
			whole += line
		}
		want, err := settings.Read(withFiles(t, map[string]string{ownMain: whole}), nil)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := settings.Read(root, nil); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("files %q: %+v, %v; systemd says %+v", files, got, err, want)
		}
	}
}
