package osimage_test

import (
	"archive/tar"
	"fmt"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"machine-pivot/fault"
	"machine-pivot/osimage"
	"machine-pivot/test/oscontainer"
	"machine-pivot/test/ostreetree"
	"machine-pivot/test/registry"
)

// entry is a short name for what layers are made of.
type entry = oscontainer.Entry

func regular(name, content string) entry { return oscontainer.File(name, content) }
func directory(name string) entry        { return oscontainer.Directory(name) }
func symlink(name, target string) entry  { return oscontainer.Symlink(name, target) }

// hard is a hard link.
func hard(name, target string) entry {
	return entry{Header: tar.Header{Name: name, Linkname: target, Typeflag: tar.TypeLink, Mode: 0o644}}
}

// gone is a whiteout.
func gone(name string) entry {
	i := strings.LastIndex(name, "/") + 1
	return regular(name[:i]+".wh."+name[i:], "")
}

// with is an entry with another mode and owner.
func with(e entry, mode int64, uid, gid int) entry {
	e.Mode, e.Uid, e.Gid = mode, uid, gid
	return e
}

// having is an entry with records in its PAX header.
func having(e entry, records ...string) entry {
	e.PAXRecords = map[string]string{}
	for i := 0; i < len(records); i += 2 {
		e.PAXRecords[records[i]] = records[i+1]
	}
	return e
}

func chain(n int) []entry {
	entries := []entry{regular("usr/share/chain/0", "chain")}
	for i := range n {
		// Not in order: a link may lead to one that comes later.
		entries = append([]entry{hard(fmt.Sprintf("usr/share/chain/%d", i+1), fmt.Sprintf("usr/share/chain/%d", i))}, entries...)
	}
	return entries
}

// derivedCase is what derived layers do to the base.
type derivedCase struct {
	name   string
	base   func(o *osTree) // changes of the base
	layers [][]entry
	want   func(o *osTree) // changes of the base that have the same effect
	notes  string          // what people are told
}

func derivedCases() []derivedCase {
	const capability = "\x01\x00\x00\x02\x00\x20\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"
	return []derivedCase{
		{name: "a file replaced, with another mode", layers: [][]entry{{with(regular("usr/bin/tool", "new"), 0o4755, 0, 0)}},
			want: func(o *osTree) { o.write("usr/bin/tool", "new"); o.chmod("usr/bin/tool", 0o4755) }},
		{name: "extended attributes", layers: [][]entry{{having(regular("usr/bin/ping", "ping"), "SCHILY.xattr.user.x", "1", "SCHILY.xattr.security.capability", capability)}},
			want: func(o *osTree) {
				o.write("usr/bin/ping", "ping")
				o.xattr("usr/bin/ping", "user.x", "1")
				o.xattr("usr/bin/ping", "security.capability", capability)
			}},
		{name: "a label and an empty attribute", layers: [][]entry{{having(regular("usr/bin/x", "x"), "SCHILY.xattr.security.selinux", "system_u:object_r:shadow_t:s0", "SCHILY.xattr.user.empty", "")}},
			want: func(o *osTree) { o.write("usr/bin/x", "x") }},
		{name: "whiteouts", layers: [][]entry{{gone("usr/bin/tool"), gone("usr/share/dir"), gone("usr/share/never-there")}},
			want: func(o *osTree) { o.remove("usr/bin/tool"); o.remove("usr/share/dir") }},
		{name: "a directory removed and made again", layers: [][]entry{{gone("usr/share/dir")}, {with(directory("usr/share/dir"), 0o700, 1, 2), regular("usr/share/dir/new", "n")}},
			want: func(o *osTree) {
				o.remove("usr/share/dir")
				o.write("usr/share/dir/new", "n")
				o.chmod("usr/share/dir", 0o700)
				o.chown("usr/share/dir", 1, 2)
			}},
		{name: "the same in one layer", layers: [][]entry{{with(directory("usr/share/dir"), 0o700, 1, 2), regular("usr/share/dir/new", "n"), gone("usr/share/dir")}},
			want: func(o *osTree) {
				o.remove("usr/share/dir")
				o.write("usr/share/dir/new", "n")
				o.chmod("usr/share/dir", 0o700)
				o.chown("usr/share/dir", 1, 2)
			}},
		{name: "an opaque directory", layers: [][]entry{{with(directory("usr/share/dir"), 0o711, 0, 0), regular("usr/share/dir/new", "n"), regular("usr/share/dir/sub/new", "n"), regular("usr/share/dir/.wh..wh..opq", "")}},
			want: func(o *osTree) {
				o.remove("usr/share/dir")
				o.write("usr/share/dir/new", "n")
				o.write("usr/share/dir/sub/new", "n")
				o.chmod("usr/share/dir", 0o711)
			}},
		{name: "a whiteout and a file of the same name", layers: [][]entry{{gone("usr/bin/tool"), regular("usr/bin/tool", "new")}},
			want: func(o *osTree) { o.write("usr/bin/tool", "new") }},
		{name: "the same with a name that sorts before it", base: func(o *osTree) { o.write("usr/bin/-x", "old") },
			layers: [][]entry{{regular("usr/bin/-x", "new"), gone("usr/bin/-x")}}, want: func(o *osTree) { o.write("usr/bin/-x", "new") }},
		{name: "other types over layers", layers: [][]entry{
			{symlink("usr/share/dir", "private"), regular("usr/share/private", "file"), directory("usr/bin/tool"), regular("usr/bin/tool/inside", "i")},
			{directory("usr/share/dir"), regular("usr/share/dir/new", "n"), regular("usr/bin/tool", "again")},
		}, want: func(o *osTree) {
			o.remove("usr/share/dir")
			o.write("usr/share/dir/new", "n")
			o.write("usr/share/private", "file")
			o.write("usr/bin/tool", "again")
		}},
		{name: "a symbolic link is not followed", layers: [][]entry{{regular("bin/inside", "i")}},
			want: func(o *osTree) { o.remove("bin"); o.write("bin/inside", "i") }},
		{name: "the mode of a directory that is there", layers: [][]entry{{with(directory("usr/share/private"), 0o755, 3, 4), regular("usr/share/private/new", "n")}},
			want:  func(o *osTree) { o.write("usr/share/private/new", "n") },
			notes: "/usr/share/private keeps mode 0700 and owner 0:0: derived layer 1 has 0755 and 3:4"},
		{name: "the mode of a directory that a layer made", layers: [][]entry{{with(directory("usr/share/made"), 0o711, 1, 2)}, {with(directory("usr/share/made"), 0o700, 0, 0)}},
			want:  func(o *osTree) { o.mkdir("usr/share/made", 0o711); o.chown("usr/share/made", 1, 2) },
			notes: "/usr/share/made keeps mode 0711"},
		{name: "directories without entries", layers: [][]entry{{with(regular("usr/share/x/y/z", "z"), 0o600, 1000, 1001), regular("usr/share/private/q", "q")}},
			want: func(o *osTree) {
				o.write("usr/share/x/y/z", "z")
				for _, name := range []string{"usr/share/x", "usr/share/x/y", "usr/share/x/y/z"} {
					o.chown(name, 1000, 1001)
				}
				o.chmod("usr/share/x/y/z", 0o600)
				o.write("usr/share/private/q", "q")
			}},
		{name: "hard links", layers: [][]entry{{
			hard("usr/share/before", "usr/bin/real"), with(regular("usr/bin/real", "real"), 0o4755, 1, 1), hard("usr/bin/again", "/usr/bin/real"),
			hard("etc/linked", "./usr/bin/real"), hard("usr/share/from-etc", "etc/conf"), regular("etc/conf", "conf"),
		}}, want: func(o *osTree) {
			for _, name := range []string{"usr/share/before", "usr/bin/real", "usr/bin/again", "usr/etc/linked"} {
				o.write(name, "real")
				o.chown(name, 1, 1)
				o.chmod(name, 0o4755)
			}
			o.write("usr/share/from-etc", "conf")
			o.write("usr/etc/conf", "conf")
		}},
		{name: "a hard link to a file of a lower layer", layers: [][]entry{{hard("usr/bin/tool-too", "usr/bin/tool"), regular("usr/share/one", "1")}, {hard("usr/share/uno", "usr/share/one")}},
			want: func(o *osTree) {
				o.write("usr/bin/tool-too", "tool")
				o.write("usr/share/one", "1")
				o.write("usr/share/uno", "1")
			}},
		{name: "a chain of hard links", layers: [][]entry{chain(6)},
			want: func(o *osTree) {
				for i := range 7 {
					o.write(fmt.Sprintf("usr/share/chain/%d", i), "chain")
				}
			}},
		{name: "empty files of container tools", layers: [][]entry{{regular("etc/hostname", ""), regular("etc/resolv.conf", ""), regular("etc/other", "")}},
			want: func(o *osTree) { o.write("usr/etc/other", "") }},
		{name: "the same with content", layers: [][]entry{{regular("etc/hostname", "h"), symlink("etc/resolv.conf", "../run/resolv.conf")}},
			want: func(o *osTree) {
				o.write("usr/etc/hostname", "h")
				o.link("usr/etc/resolv.conf", "../run/resolv.conf")
			}},
		{name: "beside usr and etc, seen", layers: [][]entry{{regular("opt/app/bin", "a"), regular("boot/x", "x"), regular("top", "t")}},
			want: func(o *osTree) { o.write("opt/app/bin", "a"); o.write("boot/x", "x"); o.write("top", "t") }},
		{name: "beside usr and etc, not seen", base: func(o *osTree) { o.remove(prepareRoot) },
			layers: [][]entry{{regular("opt/app/bin", "a"), hard("usr/bin/app", "opt/app/bin"), regular("boot/x", "x"), regular("top", "t")}},
			want:   func(o *osTree) { o.write("usr/bin/app", "a") },
			notes:  "/opt of derived layer 1 is left out"},
		{name: "of the running system", layers: [][]entry{{directory("run"), regular("run/x", "x"), regular("tmp/x", "x"), regular("proc/x", "x"),
			{Header: tar.Header{Name: "dev/null", Typeflag: tar.TypeChar, Mode: 0o666}}}}, want: func(*osTree) {}},
		{name: "of var, and gone again", layers: [][]entry{{regular("var/lib/app/state", "s"), regular("var/lib/other", "o")}, {gone("var/lib/app")}},
			want: func(o *osTree) { o.write("var/lib/other", "o") }, notes: "file(s) below /var, as /var/lib/app/state, are for new installations"},
		{name: "of var, for programs", layers: [][]entry{{regular("var/tmp/x", "x")}}, want: func(o *osTree) { o.write("var/tmp/x", "x") }},
		{name: "the policy for paths of the base changed", layers: [][]entry{{regular("etc/selinux/small/contexts/files/file_contexts.local", "/usr/share/directory(/.*)?  system_u:object_r:local_t:s0\n")}},
			want: func(o *osTree) {
				o.write("usr/etc/selinux/small/contexts/files/file_contexts.local", "/usr/share/directory(/.*)?  system_u:object_r:local_t:s0\n")
			}},
		{name: "the policy for an earlier layer's path changed", layers: [][]entry{{regular("usr/libexec/daemon", "d")},
			{regular("etc/selinux/small/contexts/files/file_contexts", contexts+"/usr/libexec/daemon -- system_u:object_r:daemon_exec_t:s0\n")}},
			want: func(o *osTree) {
				o.write("usr/libexec/daemon", "d")
				o.write("usr/etc/selinux/small/contexts/files/file_contexts", contexts+"/usr/libexec/daemon -- system_u:object_r:daemon_exec_t:s0\n")
			}},
		{name: "one path by two names", layers: [][]entry{{regular("usr/etc/a", "1"), regular("etc/a", "2")}},
			want: func(o *osTree) { o.write("usr/etc/a", "2") }},
		{name: "long names, and not of ASCII", layers: [][]entry{{regular("etc/"+strings.Repeat("ä", 100)+"/"+strings.Repeat("b", 200), "l"), regular("usr/share/grün", "g")}},
			want: func(o *osTree) {
				o.write("usr/etc/"+strings.Repeat("ä", 100)+"/"+strings.Repeat("b", 200), "l")
				o.write("usr/share/grün", "g")
			}},
		{name: "layers that change nothing", layers: [][]entry{{}, {with(directory("."), 0o700, 0, 0)}, {}},
			want: func(*osTree) {}, notes: "keeps mode 0755"},
		{name: "etc removed", layers: [][]entry{{gone("etc/passwd"), gone("etc/conf.d")}, {gone("etc")}, {regular("etc/new", "n")}},
			want: func(o *osTree) { o.remove("usr/etc"); o.write("usr/etc/new", "n"); o.policy = o.origin }},
		{name: "a large file", layers: [][]entry{{regular("usr/bin/large", strings.Repeat("large ", 1<<19))}},
			want: func(o *osTree) { o.write("usr/bin/large", strings.Repeat("large ", 1<<19)) }},
		{name: "no label by the policy", layers: [][]entry{{regular("usr/share/unlabelled/x", "x")}},
			want: func(o *osTree) { o.write("usr/share/unlabelled/x", "x") }},
	}
}

// TestDerived holds the merged tree against one that is spelled out and that the real
// ostree commits, with the labels of the real libselinux.
func TestDerived(t *testing.T) {
	h := newHost(t, registry.Options{})
	usual := newOSTree(t)
	image := usual.encapsulated()
	for n, c := range derivedCases() {
		t.Run(c.name, func(t *testing.T) {
			base, img := usual, image
			if c.base != nil {
				base = usual.copy()
				c.base(base)
				img = base.encapsulated()
			}
			img, err := oscontainer.Derive(img, append(derivedOptions(c.layers), oscontainer.WithWorkDir(t.TempDir()))...)
			if err != nil {
				t.Fatal(err)
			}
			h.t, base.t = t, t
			ref, _ := h.push(fmt.Sprintf("derived-%d", n), img)
			repo := bare(t)
			result, err := h.importRef(ref, repo)
			if err != nil {
				t.Fatal(err)
			}
			ostreeTool(t, "fsck", "--repo="+repo)
			want := base.copy()
			c.want(want)
			sameTree(t, repo, result.Commit, want)
			if notes := strings.Join(result.Notes, "\n"); !strings.Contains(notes, c.notes) || (c.notes == "") != (notes == "") {
				t.Errorf("notes %q, want %q", notes, c.notes)
			}
			again, err := h.importRef(ref, repo)
			if err != nil || again.Commit != result.Commit || again.Bytes.Fetched != 0 || again.Objects.New != 0 {
				t.Errorf("again: %+v, %v", again, err)
			}
		})
	}
}

func derivedOptions(layers [][]entry) (opts []oscontainer.Option) {
	for _, entries := range layers {
		opts = append(opts, oscontainer.WithDerived(entries...))
	}
	return opts
}

// sameTree compares a commit's tree with what ostree makes of a directory.
func sameTree(t *testing.T, repo, commit string, want *osTree) {
	t.Helper()
	wanted := want.commit()
	got, err := ostreetree.List(repo, commit)
	if err != nil {
		t.Fatal(err)
	}
	list, err := ostreetree.List(want.repo, wanted)
	if err != nil {
		t.Fatal(err)
	}
	if got != list {
		t.Errorf("the merged tree differs:\n%s", difference(list, got))
	}
}

// difference are the lines that only one of two listings has.
func difference(want, got string) string {
	var b strings.Builder
	for sign, lists := range map[string][2]string{"-": {want, got}, "+": {got, want}} {
		for line := range strings.Lines(lists[0]) {
			if !strings.Contains(lists[1]+"\n", strings.TrimSuffix(line, "\n")+"\n") {
				fmt.Fprintf(&b, "%s %s\n", sign, strings.TrimSpace(line))
			}
		}
	}
	return b.String()
}

// TestKernelArguments: an import says which ones the image brings, for the machine that
// it is for.
func TestKernelArguments(t *testing.T) {
	h := newHost(t, registry.Options{})
	img, err := oscontainer.Derive(newOSTree(t).encapsulated(), oscontainer.WithWorkDir(t.TempDir()), oscontainer.WithDerived(
		regular("usr/lib/bootc/kargs.d/10-x.toml", `kargs = ["x"]`), regular("usr/lib/bootc/kargs.d/20-y.toml", `kargs = ["never"]`)),
		oscontainer.WithDerived(regular("usr/lib/bootc/kargs.d/20-y.toml", `kargs = ["y=1 z", "a"]`)))
	if err != nil {
		t.Fatal(err)
	}
	ref, _ := h.push("kargs", img)
	result, err := h.importRef(ref, bare(t))
	if err != nil || result.KernelArguments.String() != "x y=1 z a" || len(result.Notes) > 0 {
		t.Errorf("arguments %q, notes %q, %v", result.KernelArguments, result.Notes, err)
	}
}

// TestChangedObjects has layers of builders that write to a base's objects through
// their names in the image's own repository: what they change has its data there, or
// is a hard link to it.
func TestChangedObjects(t *testing.T) {
	const objects = "sysroot/ostree/repo/objects/"
	const capability = "\x01\x00\x00\x02\x00\x20\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"
	h := newHost(t, registry.Options{})
	base := newOSTree(t)
	image := base.encapsulated()
	object := func(path string) string {
		fields := strings.Fields(ostreeTool(t, "ls", "--repo="+base.repo, "-C", ostreetree.Branch, path))
		return objects + fields[4][:2] + "/" + fields[4][2:] + ".file"
	}
	tool, passwd := object("/usr/bin/tool"), object("/usr/etc/passwd")
	changed := having(with(regular(tool, "new"), 0o4755, 0, 0), "SCHILY.xattr.security.capability", capability)
	wantTool := func(o *osTree, names ...string) {
		for _, name := range names {
			o.write(name, "new")
			o.chmod(name, 0o4755)
			o.xattr(name, "security.capability", capability)
		}
	}
	for n, c := range []struct {
		name  string
		layer []entry
		want  func(o *osTree)
	}{
		{"with links to it", []entry{changed, hard("usr/bin/tool", tool), hard("usr/bin/tool-too", "./"+tool)},
			func(o *osTree) { wantTool(o, "usr/bin/tool", "usr/bin/tool-too") }},
		{"with links before it", []entry{hard("usr/bin/tool", "/"+tool), changed}, func(o *osTree) { wantTool(o, "usr/bin/tool") }},
		{"with a link below etc", []entry{regular(passwd, "changed"), hard("etc/passwd", passwd)},
			func(o *osTree) { o.write("usr/etc/passwd", "changed") }},
		{"the object a link to what is below etc", []entry{regular("etc/passwd", "changed"), hard(passwd, "etc/passwd"), hard("usr/share/passwd", passwd)},
			func(o *osTree) { o.write("usr/etc/passwd", "changed"); o.write("usr/share/passwd", "changed") }},
		{"only a link to the base's", []entry{hard("usr/bin/tool-too", tool), directory("sysroot/ostree/repo/objects")},
			func(o *osTree) { o.write("usr/bin/tool-too", "tool") }},
	} {
		t.Run(c.name, func(t *testing.T) {
			img, err := oscontainer.Derive(image, oscontainer.WithDerived(c.layer...), oscontainer.WithWorkDir(t.TempDir()))
			if err != nil {
				t.Fatal(err)
			}
			h.t, base.t = t, t
			ref, _ := h.push(fmt.Sprintf("objects-%d", n), img)
			repo := bare(t)
			result, err := h.importRef(ref, repo)
			if err != nil {
				t.Fatal(err)
			}
			want := base.copy()
			c.want(want)
			sameTree(t, repo, result.Commit, want)
		})
	}
}

// TestSparse: GNU tar stores files with holes in forms of their own.
func TestSparse(t *testing.T) {
	h := newHost(t, registry.Options{})
	base := newOSTree(t)
	image := base.encapsulated()
	holes := make([]byte, 1<<20)
	copy(holes[300000:], "in the middle")
	for n, format := range []string{"gnu", "posix"} {
		t.Run(format, func(t *testing.T) {
			dir := t.TempDir()
			base.t, h.t = t, t
			want := base.copy()
			for _, o := range []*osTree{{t: t, dir: dir}, want} {
				o.write("usr/share/holes", string(holes))
				o.write("usr/share/later", "later")
			}
			if out, err := exec.Command("fallocate", "--dig-holes", filepath.Join(dir, "usr/share/holes")).CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			archive, err := exec.Command("tar", "--format="+format, "--sparse", "-C", dir, "-c", "usr/share/holes", "usr/share/later").Output()
			if err != nil || len(archive) > len(holes)/2 {
				t.Fatalf("%d bytes, %v", len(archive), err)
			}
			img, err := oscontainer.Derive(image, oscontainer.WithDerivedArchive(archive), oscontainer.WithWorkDir(t.TempDir()))
			if err != nil {
				t.Fatal(err)
			}
			ref, _ := h.push(fmt.Sprintf("sparse-%d", n), img)
			repo := bare(t)
			result, err := h.importRef(ref, repo)
			if err != nil {
				t.Fatal(err)
			}
			sameTree(t, repo, result.Commit, want)
		})
	}
}

// TestDerivedRefused has what no commit can be made of.
func TestDerivedRefused(t *testing.T) {
	h := newHost(t, registry.Options{})
	image := newOSTree(t).encapsulated()
	for n, c := range []struct {
		name   string
		layers [][]entry
		kind   fault.Kind
		want   string
	}{
		{"a pipe", [][]entry{{{Header: tar.Header{Name: "usr/fifo", Typeflag: tar.TypeFifo}}}}, fault.BadInput, `"usr/fifo": an entry of type`},
		{"a device", [][]entry{{{Header: tar.Header{Name: "usr/null", Typeflag: tar.TypeChar}}}}, fault.BadInput, `"usr/null": an entry of type`},
		{"a disk", [][]entry{{regular("usr/share/before", "b")}, {{Header: tar.Header{Name: "usr/lib/disk", Typeflag: tar.TypeBlock}}}}, fault.BadInput, `"usr/lib/disk": an entry of type`},
		{"upwards", [][]entry{{regular("usr/../../x", "x")}}, fault.BadInput, "leads upwards"},
		{"not UTF-8", [][]entry{{regular("usr/\xff", "x")}}, fault.BadInput, "UTF-8"},
		{"a long name", [][]entry{{regular("usr/"+strings.Repeat("x", 256), "x")}}, fault.BadInput, "longer than 255"},
		{"a whiteout of nothing", [][]entry{{regular("usr/.wh.", "")}}, fault.BadInput, "a whiteout of"},
		{"a whiteout of the directory above", [][]entry{{regular("usr/share/.wh...", "")}}, fault.BadInput, "a whiteout of"},
		{"file and directory", [][]entry{{regular("usr/x", "x"), regular("usr/x/y", "y")}}, fault.BadInput, "/usr/x is a directory and a file"},
		{"directory and file", [][]entry{{regular("usr/x/y", "y"), regular("usr/x", "x")}}, fault.BadInput, "/usr/x is a directory and a file"},
		{"a hard link to nothing", [][]entry{{hard("usr/x", "usr/nothing")}}, fault.BadInput, "/usr/x is a hard link to /usr/nothing"},
		{"hard links in a circle", [][]entry{{hard("usr/x", "usr/y"), hard("usr/y", "usr/x")}}, fault.BadInput, "leads to itself"},
		{"two kernels", [][]entry{{regular("usr/lib/modules/6.2.0/vmlinuz", "k")}}, fault.Refused, "2 kernels (6.1.0, 6.2.0)"},
		{"no kernel", [][]entry{{gone("usr/lib/modules")}}, fault.Refused, "no kernel"},
		{"no release", [][]entry{{regular("usr/lib/os-release", "NAME=x\n")}}, fault.Refused, "no PRETTY_NAME or ID in /usr/lib/os-release"},
		{"signed", [][]entry{{regular(prepareRoot, "[composefs]\nenabled = signed\n")}}, fault.Refused, "boots only what is signed"},
		{"a pattern that Go does not know", [][]entry{{regular("etc/selinux/small/contexts/files/file_contexts.local", "/usr/share/(?=x).* system_u:object_r:x_t:s0\n")}}, fault.Refused, "(?=x)"},
		{"no policy", [][]entry{{gone("etc/selinux/small/policy")}}, fault.BadInput, "policy/policy.*"},
	} {
		t.Run(c.name, func(t *testing.T) {
			h.t = t
			img, err := oscontainer.Derive(image, append(derivedOptions(c.layers), oscontainer.WithWorkDir(t.TempDir()))...)
			if err != nil {
				t.Fatal(err)
			}
			h.refuses(fmt.Sprintf("refused-%d", n), img, c.kind, c.want)
		})
	}
}

// refuses requires that an image is refused, and leaves nothing but whole layers.
func (h *host) refuses(name string, img v1.Image, kind fault.Kind, want string) {
	h.t.Helper()
	ref, _ := h.push(name, img)
	repo := bare(h.t)
	_, err := h.importRef(ref, repo)
	if fault.KindOf(err) != kind || err == nil || !strings.Contains(err.Error(), want) || fault.HintOf(err) == "" {
		h.t.Errorf("error %v (%v), want %q", err, fault.HintOf(err), want)
	}
	onlyLayers(h.t, repo, "")
	if left, err := filepath.Glob(filepath.Join(repo, "tmp/pivot-*")); err != nil || len(left) > 0 {
		h.t.Errorf("left below tmp: %q, %v", left, err)
	}
}

// TestPlainRefused: the same holds for an image without an ostree commit.
func TestPlainRefused(t *testing.T) {
	h := newHost(t, registry.Options{})
	o := newOSTree(t)
	for n, c := range []struct {
		name  string
		layer []entry
		kind  fault.Kind
		want  string
	}{
		{"a pipe", []entry{{Header: tar.Header{Name: "usr/fifo", Typeflag: tar.TypeFifo}}}, fault.BadInput, `"usr/fifo": an entry of type`},
		{"upwards", []entry{regular("../x", "x")}, fault.BadInput, "leads upwards"},
		{"not UTF-8", []entry{regular("opt/\xff", "x")}, fault.BadInput, "UTF-8"},
		{"two kernels", []entry{regular("usr/lib/modules/6.2.0/vmlinuz", "k")}, fault.Refused, "2 kernels (6.1.0, 6.2.0)"},
		{"no release", []entry{gone("usr/lib/os-release")}, fault.Refused, "no PRETTY_NAME or ID"},
		{"signed", []entry{regular(prepareRoot, "[composefs]\nenabled = signed\n")}, fault.Refused, "boots only what is signed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			h.t, o.t = t, t
			img, err := oscontainer.Derive(plainImage(t, o, 3), oscontainer.WithDerived(c.layer...), oscontainer.WithWorkDir(t.TempDir()))
			if err != nil {
				t.Fatal(err)
			}
			h.refuses(fmt.Sprintf("plain-refused-%d", n), img, c.kind, c.want)
		})
	}
}

// TestDerivedForAnotherMachine: an image with derived layers, or a plain one, for another
// architecture is refused before a layer is fetched.
func TestDerivedForAnotherMachine(t *testing.T) {
	h := newHost(t, registry.Options{})
	o := newOSTree(t)
	derived, err := oscontainer.Derive(o.encapsulated(), oscontainer.WithDerived(regular("usr/x", "x")), oscontainer.WithWorkDir(t.TempDir()))
	if err != nil {
		t.Fatal(err)
	}
	for name, img := range map[string]v1.Image{"derived": derived, "plain": plainImage(t, o, 2)} {
		ref, _ := h.push(name, stating(t, img, "linux", "s390x", ""))
		repo := bare(t)
		image, since := h.resolve(ref), h.registry.Requests()
		_, err := h.importRef(ref, repo)
		refused(t, err, fault.Refused, "it is for linux/s390x, but the machine is", "use the image that is built for linux/")
		if layers := h.fetched(image, since); len(layers) > 0 {
			t.Errorf("%s: layers %v were fetched", name, layers)
		}
		if refs := allRefs(t, repo); len(refs) > 0 {
			t.Errorf("%s: refs %v", name, refs)
		}
	}
}

// TestBase is what an image says of what it was built on.
func TestBase(t *testing.T) {
	const digest = "sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	says := map[string]string{"org.opencontainers.image.base.name": "quay.example/base:1", "org.opencontainers.image.base.digest": digest}
	h := newHost(t, registry.Options{})
	o := newOSTree(t)
	base := o.encapsulated()
	commit := ostreeTool(t, "rev-parse", "--repo="+o.repo, ostreetree.Branch)
	derive := func(opts ...oscontainer.Option) v1.Image {
		img, err := oscontainer.Derive(base, append(opts, oscontainer.WithDerived(regular("usr/x", "x")), oscontainer.WithWorkDir(t.TempDir()))...)
		if err != nil {
			t.Fatal(err)
		}
		return img
	}
	inherited := plainImage(t, o, 2, oscontainer.WithLabel("org.opencontainers.image.base.digest", digest))
	for name, c := range map[string]struct {
		img  v1.Image
		want *osimage.Base
	}{
		"encapsulated":            {base, nil},
		"derived":                 {derive(), &osimage.Base{Commit: commit, Layers: 1}},
		"derived, with its base":  {annotated(derive(), says), &osimage.Base{Name: "quay.example/base:1", Digest: digest, Commit: commit, Layers: 1}},
		"plain":                   {plainImage(t, o, 2), nil},
		"plain, with its base":    {annotated(plainImage(t, o, 2), says), &osimage.Base{Name: "quay.example/base:1", Digest: digest}},
		"by a label":              {inherited, &osimage.Base{Digest: digest}},
		"an annotation and label": {annotated(inherited, map[string]string{"org.opencontainers.image.base.digest": "sha256:other"}), &osimage.Base{Digest: "sha256:other"}},
	} {
		ref, _ := h.push("base", c.img)
		if got := h.resolve(ref).Base; !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

// annotated is an image in the form of OCI with annotations of its manifest.
func annotated(img v1.Image, annotations map[string]string) v1.Image {
	img = mutate.ConfigMediaType(mutate.MediaType(img, types.OCIManifestSchema1), types.OCIConfigJSON)
	return mutate.Annotations(img, annotations).(v1.Image)
}

// TestPlain: the same tree as one layer, and as many, without an ostree commit.
func TestPlain(t *testing.T) {
	h := newHost(t, registry.Options{})
	o := newOSTree(t)
	for name, c := range map[string]struct {
		layers      int
		compression oscontainer.Compression
	}{"one": {1, oscontainer.Zstd}, "many": {300, oscontainer.Gzip}, "chunked": {5, oscontainer.ZstdChunked}} {
		t.Run(name, func(t *testing.T) {
			h.t, o.t = t, t
			ref, _ := h.push(name, plainImage(t, o, c.layers, oscontainer.WithCompression(c.compression)))
			repo := bare(t)
			result, err := h.importRef(ref, repo)
			if err != nil {
				t.Fatal(err)
			}
			if result.Format != osimage.Plain {
				t.Errorf("format %s", result.Format)
			}
			ostreeTool(t, "fsck", "--repo="+repo)
			sameTree(t, repo, result.Commit, o)
			if parent := ostreeTool(t, "show", "--repo="+repo, result.Commit); strings.Contains(parent, "Parent") {
				t.Errorf("a parent:\n%s", parent)
			}
			again, err := h.importRef(ref, repo)
			if err != nil || again.Commit != result.Commit || again.Bytes.Fetched != 0 || again.Objects.New != 0 {
				t.Errorf("again: %+v, %v", again, err)
			}
		})
	}
}

// givePolicy installs the policy of the small OS on the host.
func (h *host) givePolicy(contexts string) {
	const dir = "/etc/selinux/small/contexts/files/file_contexts"
	h.write("/etc/selinux/config", "SELINUX=enforcing\nSELINUXTYPE=small\n")
	h.write(dir, contexts)
	h.write(dir+".subs_dist", "/usr/etc /etc\n")
}

// TestGuessedLabels: whatever policy the host has, the labels are those of the image's
// own, and what was guessed right is written once.
func TestGuessedLabels(t *testing.T) {
	o := newOSTree(t)
	o.write("usr/bin/large", strings.Repeat("large ", 1<<19))
	for name, policy := range map[string]string{
		"none": "", "the same": contexts, "another": strings.ReplaceAll(contexts, "bin_t", "other_bin_t"), "one that cannot be read": "/x -z x\n",
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t, registry.Options{})
			if policy != "" {
				h.givePolicy(policy)
			}
			o.t = t
			ref, _ := h.push("guess", plainImage(t, o, 3))
			repo := bare(t)
			result, err := h.importRef(ref, repo)
			if err != nil {
				t.Fatal(err)
			}
			ostreeTool(t, "fsck", "--repo="+repo)
			sameTree(t, repo, result.Commit, o)
			// The content is in each layer once; the rest is metadata. A wrong guess costs
			// a copy, since the layers are kept before the right labels are known.
			most := int64(6<<19) * 105 / 100
			if name == "another" {
				most *= 2
			}
			if result.Bytes.Written > most {
				t.Errorf("%d bytes written of %d", result.Bytes.Written, most)
			}
			if name == "the same" {
				pruned, err := ostreetree.Ostree("prune", "--refs-only", "--no-prune", "--repo="+repo)
				if err != nil || !strings.Contains(pruned, "No unreachable objects") {
					t.Errorf("something was written that nothing needs: %s, %v", pruned, err)
				}
			}
		})
	}
}
