package selinux_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"machine-pivot/internal/selinux"
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
	c, err := selinux.In(dir).Contexts("test")
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
		files := selinux.Files(func(name string) ([]byte, error) {
			if strings.HasSuffix(name, "/file_contexts") {
				return []byte(text), nil
			}
			return nil, fs.ErrNotExist
		})
		if _, err := files.Contexts("p"); err == nil || !strings.Contains(err.Error(), "file_contexts: "+want) {
			t.Errorf("%q: error %v, want %q", text, err, want)
		}
	}
	none := selinux.In(t.TempDir())
	if _, err := none.Contexts("p"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without contexts: %v", err)
	}
	if _, err := none.Contexts(""); err == nil || !strings.Contains(err.Error(), "SELINUXTYPE") {
		t.Errorf("without a policy's name: %v", err)
	}
}

func TestConfig(t *testing.T) {
	dir := t.TempDir()
	if c, err := selinux.In(dir).Config(); err != nil || c.On() {
		t.Errorf("without a file: %+v, %v", c, err)
	}
	for text, want := range map[string]selinux.Config{
		"# SELINUX=disabled\nSELINUX=enforcing\nSELINUXTYPE=targeted\n": {Mode: "enforcing", Policy: "targeted"},
		" SELINUX= Permissive \nSELINUXTYPE=mls ":                       {Mode: "permissive", Policy: "mls"},
		"SELINUX=enforcing\nSELINUX=disabled\n":                         {Mode: "disabled"},
	} {
		check(t, os.WriteFile(filepath.Join(dir, "config"), []byte(text), 0o644))
		if c, err := selinux.In(dir).Config(); err != nil || c != want || c.On() != (want.Mode != "disabled") {
			t.Errorf("%q: %+v, %v", text, c, err)
		}
	}
}

// TestApply: all files below a directory get their labels, except files with several hard links
// and files for which the policy has no label.
func TestApply(t *testing.T) {
	policyDir, _ := policy(t)
	c, err := selinux.In(policyDir).Contexts("test")
	check(t, err)
	root := t.TempDir()
	for _, name := range []string{"etc/dir/file", "etc/shadow", "mnt/a/b", "etc/linked"} {
		check(t, os.MkdirAll(filepath.Join(root, filepath.Dir(name)), 0o755))
		check(t, os.WriteFile(filepath.Join(root, name), nil, 0o644))
	}
	check(t, os.Link(filepath.Join(root, "etc/linked"), filepath.Join(root, "other-name")))
	check(t, os.Symlink("shadow", filepath.Join(root, "etc/link")))
	check(t, selinux.SetLabel(filepath.Join(root, "mnt/a/b"), label("kept")))
	check(t, c.Apply(filepath.Join(root, "etc"), "/etc"))
	check(t, c.Apply(filepath.Join(root, "mnt"), "/mnt"))
	for name, want := range map[string]string{
		"etc": "etc", "etc/dir": "etc", "etc/dir/file": "etc", "etc/shadow": "shadow", "etc/link": "etc", "mnt/a/b": "kept", "mnt/a": "default",
	} {
		if got, err := selinux.LabelOf(filepath.Join(root, name)); got != label(want) {
			t.Errorf("%s: %q, %v; want %q", name, got, err, label(want))
		}
	}
	if got, err := selinux.LabelOf(filepath.Join(root, "etc/linked")); got != "" || err != nil {
		t.Errorf("a file with another name has the label %q, %v", got, err)
	}
	check(t, c.Check(filepath.Join(root, "etc"), "/etc"))
	check(t, selinux.SetLabel(filepath.Join(root, "etc/link"), label("wrong")))
	if err := c.Check(filepath.Join(root, "etc"), "/etc"); err == nil || !strings.Contains(err.Error(), "etc/link has the SELinux label") {
		t.Errorf("with a wrong label: %v", err)
	}
}

// TestInherit: a file without a label gets its directory's label; a file with a label keeps it.
func TestInherit(t *testing.T) {
	dir := t.TempDir()
	plain, labelled := filepath.Join(dir, "plain"), filepath.Join(dir, "labelled")
	check(t, os.WriteFile(plain, nil, 0o644))
	check(t, selinux.Inherit(plain))
	if got, err := selinux.LabelOf(plain); got != "" || err != nil {
		t.Errorf("from a directory without a label: %q, %v", got, err)
	}
	check(t, os.WriteFile(labelled, nil, 0o644))
	check(t, selinux.SetLabel(labelled, label("own")))
	check(t, selinux.SetLabel(dir, label("directory")))
	for name, want := range map[string]string{plain: "directory", labelled: "own"} {
		check(t, selinux.Inherit(name))
		if got, err := selinux.LabelOf(name); got != label(want) {
			t.Errorf("%s: %q, %v; want %q", name, got, err, label(want))
		}
	}
}

// kernel returns a Kernel with regular files as its selinuxfs.
func kernel(t *testing.T, files map[string]string) selinux.Kernel {
	t.Helper()
	root := t.TempDir()
	for name, content := range files {
		name = filepath.Join(root, name)
		check(t, os.MkdirAll(filepath.Dir(name), 0o755))
		check(t, os.WriteFile(name, []byte(content), 0o644))
	}
	return selinux.Running(root)
}

// TestKernel: a label cannot be stored only if the policy does not know it, is enforced, and
// does not grant the process mac_admin.
func TestKernel(t *testing.T) {
	const self, fs = "u:r:t:s0", "sys/fs/selinux/"
	question := fmt.Sprintf("%s %s 69", self, self)
	answer := func(allowed, flags string) string {
		return strings.Repeat(" ", len(question)) + allowed + " ffffffff 0 ffffffff 1 " + flags
	}
	for _, c := range []struct {
		name, enforce, access string
		knows, want           bool
	}{
		{"known", "1", answer("0", "0"), true, true},
		{"unknown", "1", answer("2", "0"), false, false},
		{"mac_admin", "1", answer("3", "0"), false, true},
		{"permissive", "0", answer("2", "0"), false, true},
		{"permissive domain", "1", answer("2", "1"), false, true},
		{"no answer", "1", "", false, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := kernel(t, map[string]string{
				fs + "enforce": c.enforce, fs + "access": c.access, "proc/self/attr/current": self + "\x00\n",
				fs + "class/capability2/index": "69", fs + "class/capability2/perms/mac_admin": "1",
			})
			context := filepath.Join(k.Dir, "context")
			if c.knows {
				check(t, os.WriteFile(context, nil, 0o644))
			} else {
				// A kernel file that accepts only numbers and returns EINVAL for anything else.
				check(t, os.Symlink("/proc/self/oom_score_adj", context))
			}
			if err := k.Check("u:object_r:x_t:s0"); (err == nil) != c.want || err != nil && !errors.Is(err, selinux.ErrUnknown) {
				t.Errorf("error %v, want none: %v", err, c.want)
			}
		})
	}
	k := kernel(t, nil)
	if err := k.Check("anything"); k.Loaded() || err != nil {
		t.Errorf("without a policy: %v", err)
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
