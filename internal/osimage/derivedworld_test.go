package osimage_test

import (
	"bytes"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"golang.org/x/sys/unix"

	"machine-pivot/test/tools/need"
	"machine-pivot/test/worlds/oscontainer"
	"machine-pivot/test/worlds/ostreetree"
)

// osTree is a directory with a small OS that has an SELinux policy. The real ostree commits it
// with the labels that the real libselinux gives according to that policy.
type osTree struct {
	t      *testing.T
	dir    string
	policy string // the tree with the policy for its labels; by default dir
	origin string // the tree that it is a copy of
	repo   string // the repository for commits
	asMade string // the commit by newOSTree; "" after a change
	odd    bool   // ostree does not call it bootable
}

// contexts is the policy's file_contexts.
const contexts = `
/.*                          system_u:object_r:default_t:s0
/                        -d  system_u:object_r:root_t:s0
/(usr|opt)(/.*)?             system_u:object_r:usr_t:s0
/usr/(.*/)?s?bin(/.*)?       system_u:object_r:bin_t:s0
/usr/bin/tool            --  system_u:object_r:tool_exec_t:s0
/etc(/.*)?                   system_u:object_r:etc_t:s0
/etc/passwd[-+]?         --  system_u:object_r:passwd_t:s0
/var(/.*)?                   system_u:object_r:var_t:s0
/usr/share/unlabelled(/.*)?  <<none>>
/mnt                     -d  system_u:object_r:mnt_t:s0
`

const prepareRoot = "usr/lib/ostree/prepare-root.conf"

// newOSTree returns the OS that images are derived from, committed in a new repository.
func newOSTree(t *testing.T) *osTree {
	t.Helper()
	need.Ostree(t)
	tarball, commit := firstOS.packed(t)
	dir := t.TempDir()
	cmd := exec.Command("tar", "-C", dir, "--numeric-owner", "--xattrs", "--xattrs-include=*", "-xpf", "-")
	cmd.Stdin = bytes.NewReader(tarball)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	o := &osTree{t: t, dir: filepath.Join(dir, "tree"), repo: filepath.Join(dir, "repo"), asMade: commit}
	o.policy = o.dir
	return o
}

// firstOS is unpacked by newOSTree, because making the OS with ostree takes ten times as long.
var firstOS packedOS

// packedOS is a tarball of an OS and its repository. It is made when a test first needs it.
type packedOS struct {
	once    sync.Once
	tarball []byte
	commit  string
}

func (p *packedOS) packed(t *testing.T) (tarball []byte, commit string) {
	t.Helper()
	p.once.Do(func() {
		dir := t.TempDir()
		o := makeOSTree(t, dir)
		commit := o.commit()
		tarball, err := exec.Command("tar", "-C", dir, "--numeric-owner", "--xattrs", "--xattrs-include=*", "-cf", "-", "tree", "repo").Output()
		o.must(err)
		p.tarball, p.commit = tarball, commit
	})
	return p.tarball, p.commit
}

// makeOSTree makes the OS in the subdirectory tree, and its repository in the subdirectory repo.
func makeOSTree(t *testing.T, dir string) *osTree {
	t.Helper()
	o := &osTree{t: t, dir: filepath.Join(dir, "tree"), repo: filepath.Join(dir, "repo")}
	o.policy = o.dir
	o.must(os.Mkdir(o.dir, 0o755))
	o.must(ostreetree.Init(o.repo, "bare"))
	ostreeTool(t, "config", "--repo="+o.repo, "set", "core.fsync", "false")
	o.must(os.Chmod(o.dir, 0o755))
	for _, dir := range []string{"boot", "dev", "proc", "run", "sys", "sysroot", "tmp", "var"} {
		o.mkdir(dir, 0o755)
	}
	o.link("bin", "usr/bin")
	o.write("usr/lib/os-release", "ID=test\n")
	o.write("usr/lib/modules/6.1.0/vmlinuz", "kernel")
	o.write("usr/lib/modules/6.1.0/initramfs.img", "initramfs")
	o.write(prepareRoot, "[composefs]\nenabled = maybe\n")
	o.write("usr/bin/tool", "tool")
	o.write("usr/bin/other", "other")
	o.write("usr/share/dir/a", "a")
	o.write("usr/share/dir/b", "b")
	o.write("usr/share/dir/sub/c", "c")
	o.mkdir("usr/share/private", 0o700)
	o.write("usr/share/private/p", "p")
	o.write("usr/etc/passwd", "root")
	o.write("usr/etc/conf.d/one", "1")
	o.write("usr/etc/selinux/config", "SELINUX=enforcing\nSELINUXTYPE=small\n")
	o.write("usr/etc/selinux/small/policy/policy.33", "binary")
	o.write("usr/etc/selinux/small/contexts/files/file_contexts", contexts)
	o.write("usr/etc/selinux/small/contexts/files/file_contexts.subs_dist", "/usr/etc /etc\n")
	return o
}

func (o *osTree) must(err error) {
	o.t.Helper()
	if err != nil {
		o.t.Fatal(err)
	}
}

// path returns the path of a file in the tree, which the caller may then change.
func (o *osTree) path(name string) string {
	o.asMade = ""
	return filepath.Join(o.dir, name)
}

func (o *osTree) mkdir(name string, mode fs.FileMode) {
	o.t.Helper()
	o.must(os.MkdirAll(o.path(name), 0o755))
	o.must(os.Chmod(o.path(name), mode))
}

// write writes a file. It replaces any file or directory with that name.
func (o *osTree) write(name, content string) {
	o.t.Helper()
	o.remove(name)
	o.must(os.MkdirAll(filepath.Dir(o.path(name)), 0o755))
	o.must(os.WriteFile(o.path(name), []byte(content), 0o644))
}

func (o *osTree) link(name, target string) {
	o.t.Helper()
	o.remove(name)
	o.must(os.MkdirAll(filepath.Dir(o.path(name)), 0o755))
	o.must(os.Symlink(target, o.path(name)))
}

func (o *osTree) remove(name string) {
	o.t.Helper()
	o.must(os.RemoveAll(o.path(name)))
}

func (o *osTree) chmod(name string, mode uint32) {
	o.t.Helper()
	o.must(unix.Chmod(o.path(name), mode))
}

func (o *osTree) chown(name string, uid, gid int) {
	o.t.Helper()
	o.must(os.Lchown(o.path(name), uid, gid))
}

func (o *osTree) xattr(name, key, value string) {
	o.t.Helper()
	o.must(unix.Lsetxattr(o.path(name), key, []byte(value), 0))
}

// copy returns a copy of the tree, which may be changed.
func (o *osTree) copy() *osTree {
	o.t.Helper()
	c := &osTree{t: o.t, dir: filepath.Join(o.t.TempDir(), "copy"), repo: o.repo, origin: o.dir}
	c.policy = c.dir
	o.must(os.Mkdir(c.dir, 0o755))
	c.copyFrom(o.dir)
	return c
}

// copyFrom adds all files of another tree.
func (o *osTree) copyFrom(dir string) {
	o.t.Helper()
	o.asMade = ""
	if out, err := exec.Command("cp", "-a", dir+"/.", o.dir).CombinedOutput(); err != nil {
		o.t.Fatalf("%v: %s", err, out)
	}
}

// commit commits the tree with the labels of the policy. It commits twice: the first commit
// sets the labels, the second sorts them among all attributes, which ostree commit does not do.
// Neither has a parent, so that the same tree gives the same commit.
func (o *osTree) commit() string {
	o.t.Helper()
	if o.asMade != "" {
		return o.asMade
	}
	commitTree := ostreetree.Commit
	if o.odd {
		commitTree = ostreetree.CommitUnchecked
	}
	labelled, err := commitTree(o.repo, o.dir, "--parent=none", "--selinux-policy="+o.policy)
	o.must(err)
	dir := filepath.Join(o.t.TempDir(), "labelled")
	ostreeTool(o.t, "checkout", "--repo="+o.repo, "--fsync=false", labelled, dir)
	commit, err := commitTree(o.repo, dir, "--parent=none")
	o.must(err)
	return commit
}

// osBase is an OS and an image of it from which others are derived.
type osBase struct {
	*osTree
	image   v1.Image
	listing string // of its commit, as by list
}

// asBase makes an image that those releases of the reference can read that are available from
// a package registry.
func (o *osTree) asBase() osBase {
	o.t.Helper()
	image := o.encapsulated(oscontainer.WithFormerExport())
	return osBase{o, image, list(o.t, o.repo, ostreetree.Branch)}
}

// forCase returns the OS with changes, for one subtest.
func (b osBase) forCase(t *testing.T, change func(o *osTree)) osBase {
	t.Helper()
	b.t = t
	if change == nil {
		return b
	}
	tree := b.copy()
	change(tree)
	return tree.asBase()
}

// derive puts layers on top of the image.
func (b osBase) derive(layers [][]entry) v1.Image {
	b.t.Helper()
	opts := []oscontainer.Option{oscontainer.WithWorkDir(b.t.TempDir())}
	for _, entries := range layers {
		opts = append(opts, oscontainer.WithDerived(entries...))
	}
	img, err := oscontainer.Derive(b.image, opts...)
	b.must(err)
	return img
}

// object returns the path of a file's object in the image's own repository.
func (b osBase) object(path string) string {
	b.t.Helper()
	for line := range strings.SplitSeq(b.listing, "\n") {
		if strings.HasSuffix(line, " "+path) {
			checksum := strings.Fields(line)[4]
			return "sysroot/ostree/repo/objects/" + checksum[:2] + "/" + checksum[2:] + ".file"
		}
	}
	b.t.Fatalf("no %s in\n%s", path, b.listing)
	return ""
}

// encapsulated returns an ostree-native image of the tree.
func (o *osTree) encapsulated(opts ...oscontainer.Option) v1.Image {
	o.t.Helper()
	img, err := oscontainer.Encapsulated(o.repo, o.commit(), append(opts, oscontainer.WithWorkDir(o.t.TempDir()))...)
	o.must(err)
	return img
}

// plainImage returns an image of the tree without an ostree commit, in n layers, with the
// layers of opts on top.
func plainImage(t *testing.T, o *osTree, n int, opts ...oscontainer.Option) v1.Image {
	t.Helper()
	img, err := oscontainer.PlainTree(o.dir, "1.2.3", n, append(opts, oscontainer.WithWorkDir(t.TempDir()))...)
	o.must(err)
	return img
}
