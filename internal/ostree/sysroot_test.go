package ostree_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/ostree"
	"machine-pivot/internal/ostree/gvariant"
	"machine-pivot/test/tools/need"
)

// newSysroot creates a sysroot with one deployment, made by the real ostree.
func newSysroot(t *testing.T) string {
	t.Helper()
	need.Ostree(t)
	dir := t.TempDir()
	root, tree := filepath.Join(dir, "root"), filepath.Join(dir, "tree")
	check(t, os.Mkdir(root, 0o755))
	write(t, filepath.Join(tree, "usr/lib/modules/6.1/vmlinuz"), "kernel")
	write(t, filepath.Join(tree, "usr/lib/modules/6.1/initramfs.img"), "initramfs")
	write(t, filepath.Join(tree, "usr/lib/os-release"), "ID=x\nPRETTY_NAME=Test\n")
	write(t, filepath.Join(tree, "usr/etc/hosts"), "")
	run(t, "ostree", "admin", "init-fs", root)
	t.Cleanup(func() { run(t, "sh", "-c", "chattr -i "+root+"/ostree/deploy/os1/deploy/*.[0-9]") })
	run(t, "ostree", "admin", "os-init", "--sysroot="+root, "os1")
	run(t, "ostree", "config", "--repo="+root+"/ostree/repo", "set", "sysroot.bootloader", "none")
	run(t, "ostree", "commit", "--repo="+root+"/ostree/repo", "-b", "a", "--tree=dir="+tree)
	run(t, "ostree", "admin", "deploy", "--sysroot="+root, "--os=os1", "--karg=root=LABEL=root", `--karg-append=q="a b"`, "a")
	return root
}

func TestDeployments(t *testing.T) {
	root := newSysroot(t)
	origin := filepath.Join(t.TempDir(), "origin")
	write(t, origin, string(ostree.LegacyOrigin(strings.Repeat("0", 64), "pivot://x/y@sha256:z", "text").Bytes()))
	run(t, "ostree", "admin", "deploy", "--sysroot="+root, "--os=os1", "--origin-file="+origin, "--karg-append=nosmt", "a")
	all, err := ostree.OpenSysroot(root).Deployments()
	check(t, err)
	if len(all) != 2 {
		t.Fatalf("%d deployments, want 2", len(all))
	}
	first, second := all[0], all[1]
	if first.Stateroot != "os1" || first.Serial != 1 || second.Serial != 0 || first.Checksum != second.Checksum {
		t.Errorf("deployments %s and %s", first.ID(), second.ID())
	}
	if first.Origin.CustomURL() != "pivot://x/y@sha256:z" || second.Origin.Get("refspec") != "a" {
		t.Errorf("origins %+v and %+v", first.Origin, second.Origin)
	}
	if want := `root=LABEL=root q="a b" ostree=`; !strings.HasPrefix(second.Entry.Options, want) || !strings.HasSuffix(first.Entry.Options, " nosmt") {
		t.Errorf("options %q and %q", first.Entry.Options, second.Entry.Options)
	}
	if _, err := os.Stat(filepath.Join(first.Path, "usr/lib/os-release")); err != nil {
		t.Error(err)
	}
}

// TestBrokenBootLink: where the link that all boot entries lead through is broken, the hint mends it and costs no entry.
func TestBrokenBootLink(t *testing.T) {
	root := newSysroot(t)
	link := filepath.Join(root, "ostree/boot.1")
	for _, breaks := range []func() error{
		func() error { return os.Remove(link) },
		func() error { return errors.Join(os.Remove(link), os.Symlink("boot.1.7", link)) },
	} {
		check(t, breaks())
		_, err := ostree.OpenSysroot(root).Deployments()
		_, command, _ := strings.Cut(fault.HintOf(err), ": ")
		run(t, "sh", "-c", command)
		if all, err := ostree.OpenSysroot(root).Deployments(); err != nil || len(all) != 1 {
			t.Errorf("after %q: %d deployments, %v", command, len(all), err)
		}
		run(t, "ostree", "admin", "status", "--sysroot="+root)
	}
}

func TestBooted(t *testing.T) {
	root := newSysroot(t)
	if _, err := ostree.OpenSysroot(root).Booted(); err != ostree.ErrNotBooted {
		t.Errorf("error %v, want ErrNotBooted", err)
	}
	all, err := ostree.OpenSysroot(root).Deployments()
	check(t, err)
	deployed := all[0].Path
	// As after ostree-prepare-root: the deployment is "/", and the physical root is at /sysroot.
	run(t, "chattr", "-i", deployed)
	check(t, os.RemoveAll(filepath.Join(deployed, "sysroot")))
	check(t, os.Symlink(root, filepath.Join(deployed, "sysroot")))
	info, err := os.Stat(deployed)
	check(t, err)
	_ = info
	for what, marker := range map[string][]byte{"empty": {}, "without the key": encode(t, "a{sv}", []any{})} {
		write(t, filepath.Join(deployed, "run/ostree-booted"), string(marker))
		booted, err := ostree.OpenSysroot(deployed).Booted()
		if err != nil || booted.ID() != all[0].ID() {
			t.Errorf("%s: booted %s, %v", what, booted.ID(), err)
		}
	}
	write(t, filepath.Join(deployed, "run/ostree-booted"), "garbage")
	if _, err := ostree.OpenSysroot(deployed).Booted(); err == nil {
		t.Error("garbage in /run/ostree-booted: no error")
	}
}

// TestBootedSoftly: a soft reboot keeps /run, so for a while the record of the running root is that of the system
// before. The deployment with the /etc in use is the booted one.
func TestBootedSoftly(t *testing.T) {
	dir := t.TempDir()
	record := func(deployment string) string {
		var st unix.Stat_t
		check(t, unix.Stat(deployment, &st))
		return string(encode(t, "a{sv}", []any{gvariant.Tuple{"backing-root-device-inode", gvariant.Variant{Type: "(tt)", Value: gvariant.Tuple{st.Dev, st.Ino}}}}))
	}
	deployed := map[string]string{}
	for _, digit := range []string{"a", "b"} {
		deployed[digit] = filepath.Join(dir, "ostree/deploy/os/deploy", strings.Repeat(digit, 64)+".0")
		check(t, os.MkdirAll(filepath.Join(deployed[digit], "etc"), 0o755))
		write(t, deployed[digit]+".origin", "[origin]\n")
	}
	for name, c := range map[string]struct{ now, next, etc, want string }{
		"an ordinary boot":            {record(deployed["a"]), "", "a", "a"},
		"prepared":                    {record(deployed["a"]), record(deployed["b"]), "a", "a"},
		"entered":                     {record(deployed["a"]), record(deployed["b"]), "b", "b"},
		"entered and noted":           {record(deployed["b"]), "", "b", "b"},
		"what was prepared is gone":   {record(deployed["a"]), record(dir), "a", "a"},
		"a record without deployment": {record(deployed["a"]), string(encode(t, "a{sv}", []any{})), "a", "a"},
		"garbage":                     {record(deployed["a"]), "garbage", "a", ""},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir() // a composefs: not the deployment's directory
			check(t, os.Symlink(dir, filepath.Join(root, "sysroot")))
			check(t, os.Symlink(filepath.Join(deployed[c.etc], "etc"), filepath.Join(root, "etc")))
			write(t, filepath.Join(root, "run/ostree-booted"), c.now)
			if c.next != "" {
				write(t, filepath.Join(root, "run/ostree/nextroot-booted"), c.next)
			}
			booted, err := ostree.OpenSysroot(root).Booted()
			if (err == nil) != (c.want != "") || err == nil && string(booted.Checksum.String()[0]) != c.want {
				t.Errorf("booted %s, %v; want %q", booted.ID(), err, c.want)
			}
		})
	}
}

func encode(t *testing.T, typ string, value any) []byte {
	t.Helper()
	data, err := gvariant.Encode(typ, value)
	check(t, err)
	return data
}

// stagedState returns the file that libostree writes when it stages a deployment, with more
// entries.
func stagedState(t *testing.T, more ...any) []byte {
	t.Helper()
	type tuple = gvariant.Tuple
	entry := func(key, typ string, value any) tuple {
		return tuple{key, gvariant.Variant{Type: typ, Value: value}}
	}
	name := func(serial string) []any {
		return []any{
			entry("name", "s", strings.Repeat("ab", 32)+"."+serial), entry("osname", "s", "os1"),
			entry("bootcsum", "s", strings.Repeat("cd", 32)),
		}
	}
	return encode(t, "a{sv}", append([]any{
		entry("target", "a{sv}", name("1")), entry("merge-deployment", "a{sv}", name("0")),
		entry("kargs", "as", []any{"root=LABEL=root", `q="a b"`}),
	}, more...))
}

func TestStaged(t *testing.T) {
	root := t.TempDir()
	s := ostree.OpenSysroot(root)
	if staged, err := s.Staged(); staged != nil || err != nil {
		t.Errorf("nothing staged: %+v, %v", staged, err)
	}
	file := filepath.Join(root, "run/ostree/staged-deployment")
	write(t, file, string(stagedState(t)))
	c, err := ostree.ParseChecksum(strings.Repeat("ab", 32))
	check(t, err)
	want := &ostree.Staged{
		Target:          ostree.DeploymentRef{Stateroot: "os1", Checksum: c, Serial: 1},
		Merge:           ostree.DeploymentRef{Stateroot: "os1", Checksum: c, Serial: 0},
		KernelArguments: []string{"root=LABEL=root", `q="a b"`}, HasKernelArguments: true,
	}
	if staged, err := s.Staged(); err != nil || !sameStaged(staged, want) {
		t.Errorf("staged %+v, %v, want %+v", staged, err, want)
	}
	want.Locked = true
	write(t, file, string(stagedState(t, gvariant.Tuple{"locked", gvariant.Variant{Type: "b", Value: true}})))
	if staged, err := s.Staged(); err != nil || !sameStaged(staged, want) {
		t.Errorf("locked: %+v, %v", staged, err)
	}
	write(t, file, string(stagedState(t)))
	write(t, file+"-locked", "")
	if staged, err := s.Staged(); err != nil || !staged.Locked {
		t.Errorf("locked the old way: %+v, %v", staged, err)
	}
}

func sameStaged(a, b *ostree.Staged) bool {
	return a.Target == b.Target && a.Merge == b.Merge && a.Locked == b.Locked &&
		a.HasKernelArguments == b.HasKernelArguments && slices.Equal(a.KernelArguments, b.KernelArguments)
}

// TestUnlocked: Unlocked replaces the kernel arguments, removes the lock, and keeps unknown
// entries.
func TestUnlocked(t *testing.T) {
	extra := gvariant.Tuple{"bootconfig-extra", gvariant.Variant{Type: "a{ss}", Value: []any{gvariant.Tuple{"x-a", "b"}}}}
	locked := gvariant.Tuple{"locked", gvariant.Variant{Type: "b", Value: true}}
	staged, err := ostree.ParseStaged(stagedState(t, locked, extra))
	check(t, err)
	data, err := staged.Unlocked([]string{"root=LABEL=root", "nosmt"}, nil)
	check(t, err)
	got, err := ostree.ParseStaged(data)
	check(t, err)
	want := *staged
	want.Locked, want.KernelArguments = false, []string{"root=LABEL=root", "nosmt"}
	if !sameStaged(got, &want) {
		t.Errorf("staged %+v, want %+v", got, &want)
	}
	if kept := encode(t, "a{sv}", []any{extra}); !bytes.Contains(data, kept[:len(kept)-1]) {
		t.Errorf("%q does not keep %q", data, kept)
	}
}

// TestHeldBack: a deployment that is held back stays so when somebody unlocks it, and is what it was when it is released.
func TestHeldBack(t *testing.T) {
	staged, err := ostree.ParseStaged(stagedState(t, gvariant.Tuple{"locked", gvariant.Variant{Type: "b", Value: true}}))
	check(t, err)
	parse := func(data []byte, err error) *ostree.Staged {
		t.Helper()
		check(t, err)
		s, err := ostree.ParseStaged(data)
		check(t, err)
		return s
	}
	held := parse(staged.HeldBack())
	if !held.Held || !held.Locked || held.Next() || held.Merge != staged.Merge || held.Target != staged.Target {
		t.Errorf("held back: %+v", held)
	}
	if opened := parse(held.Unlocked(held.KernelArguments, nil)); !opened.Held || opened.Locked || opened.Next() {
		t.Errorf("unlocked by somebody: %+v", opened)
	}
	released, err := held.Released()
	check(t, err)
	if released.Held || !sameStaged(released, staged) {
		t.Errorf("released: %+v", released)
	}
	if opened := parse(released.Unlocked(nil, nil)); !opened.Next() || opened.Held {
		t.Errorf("released and unlocked: %+v", opened)
	}
	if again := parse(held.HeldBack()); again.Merge != staged.Merge {
		t.Errorf("held back twice: %+v", again)
	}
}

func TestLayered(t *testing.T) {
	for text, want := range map[string]bool{
		"[origin]\nrefspec=a\n": false,
		"[origin]\ncontainer-image-reference=a\n[packages]\nrequested=\n[rpmostree]\nregenerate-initramfs=false\n": false,
		"[origin]\nbaserefspec=a\n[packages]\nrequested=strace;\n":                                                 true,
		"[origin]\nrefspec=a\n[overrides]\nremove=zincati;\n":                                                      true,
		"[origin]\nrefspec=a\n[rpmostree]\nregenerate-initramfs=true\n":                                            true,
	} {
		o, err := ostree.ParseOrigin([]byte(text))
		if err != nil || o.Layered() != want {
			t.Errorf("%q: layered %v, %v, want %v", text, o.Layered(), err, want)
		}
	}
}

func TestOrigin(t *testing.T) {
	text := "[origin]\nrefspec=a\n# comment\n\n[libostree-transient]\npinned=true\n[packages]\nrequested=x;y;\n"
	o, err := ostree.ParseOrigin([]byte(text))
	check(t, err)
	if got, want := string(o.Bytes()), "[origin]\nrefspec=a\n[packages]\nrequested=x;y;\n"; got != want {
		t.Errorf("origin is %q, want %q: all but what is transient", got, want)
	}
	for _, bad := range []string{"refspec=a\n", "[origin]\nnonsense\n"} {
		if _, err := ostree.ParseOrigin([]byte(bad)); err == nil {
			t.Errorf("%q: no error", bad)
		}
	}
}

// TestOriginOfContainer: WithContainer replaces the source of the deployment and keeps
// everything else.
func TestOriginOfContainer(t *testing.T) {
	commit := strings.Repeat("a", 64)
	for text, want := range map[string]string{
		"[origin]\nbaserefspec=" + commit + "\noverride-commit=x\n[packages]\nrequested=x;y;\n":           commit,
		"[packages]\nrequested=x;y;\n[origin]\noverride-commit=x\nrefspec=" + commit + "\ncustom-url=a\n": commit,
		"[origin]\nrefspec=fedora:" + commit + "\noverride-commit=x\n[packages]\nrequested=x;y;\n":        "",
		"[origin]\ncontainer-image-reference=x\noverride-commit=x\n[packages]\nrequested=x;y;\n":          "",
	} {
		o, err := ostree.ParseOrigin([]byte(text))
		check(t, err)
		if o.Commit() != want {
			t.Errorf("%q: commit %q, want %q", text, o.Commit(), want)
		}
		got := string(o.WithContainer("image").Bytes())
		if want := "[origin]\ncontainer-image-reference=image\noverride-commit=x\n[packages]\nrequested=x;y;\n"; got != want {
			t.Errorf("%q becomes %q, want %q", text, got, want)
		}
	}
}

func FuzzParseStaged(f *testing.F) {
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		if s, err := ostree.ParseStaged(data); (s == nil) != (err != nil) {
			t.Errorf("%+v, %v", s, err)
		}
	})
}
