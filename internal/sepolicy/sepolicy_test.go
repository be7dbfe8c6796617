package sepolicy_test

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/sepolicy"
	"machine-pivot/test/tools/need"
)

// label returns the label for a type in the test policy.
func label(kind string) string { return "system_u:object_r:" + kind + "_t:s0" }

// contexts are file contexts that use all features of the format.
var contexts = map[string]string{
	"file_contexts": `# a comment
/.*		` + label("default") + `
/	-d	` + label("root") + `
/etc(/.*)?	` + label("etc") + `
/etc/shadow[-+]?	--	` + label("shadow") + `
/etc/rc\.d/init\.d/[^/]*	--	` + label("script") + `
/etc/n?vc	` + label("optional") + `
/usr/(local/)?lib(64)?/x\.so(\.[^/]*)*	--	` + label("library") + `
/usr/lib	-l	` + label("link") + `
/dev/[^/]+	-b	` + label("disk") + `
/dev/[^/]+	-c	` + label("device") + `
/run/[^/]+	-s	` + label("socket") + `
/run/[^/]+	-p	` + label("pipe") + `
/mnt/[^/]*/.*	<<none>>
/exact	` + label("first") + `
/exact	--	` + label("second") + `
/ex.ct	` + label("pattern") + `
/odd\+name\_x	` + label("odd") + `
`,
	"file_contexts.homedirs":  "/home/[^/]+/.+	" + label("home") + "\n",
	"file_contexts.local":     "/etc/local(/.*)?	" + label("local") + "\n/exact	-d	" + label("directory") + "\n",
	"file_contexts.subs":      "/own /usr\n",
	"file_contexts.subs_dist": "/lib /usr/lib\n/usr/etc /etc\n/var/home /home\n/lib/other /etc/local\n",
}

// policy writes the contexts to a directory. It returns the configuration directory and the path
// of file_contexts.
func policy(t *testing.T) (dir, file string) {
	t.Helper()
	dir = t.TempDir()
	files := filepath.Join(dir, "test/contexts/files")
	check(t, os.MkdirAll(files, 0o755))
	for name, text := range contexts {
		check(t, os.WriteFile(filepath.Join(files, name), []byte(text), 0o644))
	}
	return dir, filepath.Join(files, "file_contexts")
}

// lookups are paths and file types with the expected label.
var lookups = []struct {
	path string
	mode fs.FileMode
	want string // the type; "": none
}{
	{"/", fs.ModeDir, "root"},
	{"/", 0, "default"},
	{"/etc", fs.ModeDir, "etc"},
	{"/etc/", fs.ModeDir, "etc"},
	{"/etcetera", 0, "default"},
	{"/etc//a/b", 0, "etc"},
	{"/etc/shadow", 0, "shadow"},
	{"/etc/shadow-", 0, "shadow"},
	{"/etc/shadow", fs.ModeDir, "etc"},
	{"/etc/shadow.bak", 0, "etc"},
	{"/etc/rc.d/init.d/x", 0, "script"},
	{"/etc/rc.d/init.d/x/y", 0, "etc"},
	{"/etc/rcxd/init.d/x", 0, "etc"},
	{"/etc/vc", 0, "optional"},
	{"/etc/nvc", 0, "optional"},
	{"/usr/lib/x.so", 0, "library"},
	{"/usr/local/lib64/x.so.1.2", 0, "library"},
	{"/usr/lib/x.so/y", 0, "default"},
	{"/usr/lib", fs.ModeSymlink, "link"},
	{"/dev/sda", fs.ModeDevice, "disk"},
	{"/dev/tty", fs.ModeDevice | fs.ModeCharDevice, "device"},
	{"/run/x", fs.ModeSocket, "socket"},
	{"/run/x", fs.ModeNamedPipe, "pipe"},
	{"/mnt/a/b", 0, ""},
	{"/mnt/a", 0, "default"},
	{"/exact", 0, "second"},
	{"/exact", fs.ModeSymlink, "first"},
	{"/exact", fs.ModeDir, "directory"},
	{"/exbct", 0, "pattern"},
	{"/odd+name_x", 0, "odd"},
	{"/home/me/x\ny", 0, "home"},
	{"/home/me", fs.ModeDir, "default"},
	{"/etc/local/x", 0, "local"},
	{"/usr/etc/shadow", 0, "shadow"},
	{"/usr/etcetera", 0, "default"},
	{"/lib/x.so", 0, "library"},
	{"/lib/other/x", 0, "local"},
	{"/own/etc/shadow", 0, "shadow"},
	{"/var/home/me/x", 0, "home"},
}

// TestLabel: the rules of file_contexts(5) and its companion files.
func TestLabel(t *testing.T) {
	dir, _ := policy(t)
	c, err := sepolicy.In(dir).Contexts("test")
	check(t, err)
	for _, l := range lookups {
		want := ""
		if l.want != "" {
			want = label(l.want)
		}
		got, known, err := c.Label(l.path, l.mode)
		if got != want || known != (want != "") || err != nil {
			t.Errorf("%q, %v: %q, %v, %v; want %q", l.path, l.mode, got, known, err, want)
		}
	}
}

// TestLabelAsLibselinux: libselinux's matchpathcon returns the same labels.
func TestLabelAsLibselinux(t *testing.T) {
	if _, err := exec.LookPath("matchpathcon"); err != nil {
		need.Lacking(t, "lacking matchpathcon (selinux-utils)")
	}
	_, file := policy(t)
	kinds := map[fs.FileMode]string{
		0: "file", fs.ModeDir: "dir", fs.ModeSymlink: "lnk_file", fs.ModeSocket: "sock_file", fs.ModeNamedPipe: "pipe",
		fs.ModeDevice: "blk_file", fs.ModeDevice | fs.ModeCharDevice: "chr_file",
	}
	for _, l := range lookups {
		// It also prints "<<none>>" if no pattern matches.
		out, err := exec.Command("matchpathcon", "-n", "-f", file, "-m", kinds[l.mode], l.path).Output()
		want := "<<none>>"
		if l.want != "" {
			want = label(l.want)
		}
		if got := strings.TrimSpace(string(out)); got != want {
			t.Errorf("%q, %v: matchpathcon says %q (%v), the table %q", l.path, l.mode, got, err, want)
		}
	}
}

// TestBadContexts: an invalid file is an error that names the line.
func TestBadContexts(t *testing.T) {
	for text, want := range map[string]string{
		"/a b:c:d:s0 x y\n":   "line 1: it has 4 fields",
		"#\n\n/a -x b:c:d:s0": `line 3: "-x" is no kind of file`,
		"/etc":                "line 1: it has 1 fields",
	} {
		files := sepolicy.Files(func(name string) ([]byte, error) {
			if strings.HasSuffix(name, "/file_contexts") {
				return []byte(text), nil
			}
			return nil, fs.ErrNotExist
		})
		if _, err := files.Contexts("p"); err == nil || !strings.Contains(err.Error(), "file_contexts: "+want) {
			t.Errorf("%q: error %v, want %q", text, err, want)
		}
	}
	none := sepolicy.In(t.TempDir())
	if _, err := none.Contexts("p"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without contexts: %v", err)
	}
	if _, err := none.Contexts(""); err == nil || !strings.Contains(err.Error(), "SELINUXTYPE") {
		t.Errorf("without a policy's name: %v", err)
	}
}

func TestConfig(t *testing.T) {
	dir := t.TempDir()
	if c, err := sepolicy.In(dir).Config(); err != nil || c.On() {
		t.Errorf("without a file: %+v, %v", c, err)
	}
	for text, want := range map[string]sepolicy.Config{
		"# SELINUX=disabled\nSELINUX=enforcing\nSELINUXTYPE=targeted\n": {Mode: "enforcing", Policy: "targeted"},
		" SELINUX= Permissive \nSELINUXTYPE=mls ":                       {Mode: "permissive", Policy: "mls"},
		"SELINUX=enforcing\nSELINUX=disabled\n":                         {Mode: "disabled"},
	} {
		check(t, os.WriteFile(filepath.Join(dir, "config"), []byte(text), 0o644))
		if c, err := sepolicy.In(dir).Config(); err != nil || c != want || c.On() != (want.Mode != "disabled") {
			t.Errorf("%q: %+v, %v", text, c, err)
		}
	}
}

// TestApply: all files below a directory get their labels, except files with several hard links
// and files for which the policy has no label.
func TestApply(t *testing.T) {
	policyDir, _ := policy(t)
	c, err := sepolicy.In(policyDir).Contexts("test")
	check(t, err)
	root := t.TempDir()
	for _, name := range []string{"etc/dir/file", "etc/shadow", "mnt/a/b", "etc/linked"} {
		check(t, os.MkdirAll(filepath.Join(root, filepath.Dir(name)), 0o755))
		check(t, os.WriteFile(filepath.Join(root, name), nil, 0o644))
	}
	check(t, os.Link(filepath.Join(root, "etc/linked"), filepath.Join(root, "other-name")))
	check(t, os.Symlink("shadow", filepath.Join(root, "etc/link")))
	check(t, hostfiles.SetLabel(filepath.Join(root, "mnt/a/b"), label("kept")))
	check(t, c.Apply(filepath.Join(root, "etc"), "/etc"))
	check(t, c.Apply(filepath.Join(root, "mnt"), "/mnt"))
	for name, want := range map[string]string{
		"etc": "etc", "etc/dir": "etc", "etc/dir/file": "etc", "etc/shadow": "shadow", "etc/link": "etc", "mnt/a/b": "kept", "mnt/a": "default",
	} {
		if got, err := hostfiles.LabelOf(filepath.Join(root, name)); got != label(want) {
			t.Errorf("%s: %q, %v; want %q", name, got, err, label(want))
		}
	}
	if got, err := hostfiles.LabelOf(filepath.Join(root, "etc/linked")); got != "" || err != nil {
		t.Errorf("a file with another name has the label %q, %v", got, err)
	}
	check(t, c.Check(filepath.Join(root, "etc"), "/etc"))
	check(t, hostfiles.SetLabel(filepath.Join(root, "etc/link"), label("wrong")))
	if err := c.Check(filepath.Join(root, "etc"), "/etc"); err == nil || !strings.Contains(err.Error(), "etc/link has the SELinux label") {
		t.Errorf("with a wrong label: %v", err)
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
