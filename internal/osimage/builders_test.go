package osimage_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"

	"machine-pivot/test/tools/need"
)

// TestBuilders uses layers written by a real container tool, umoci, from files of this machine,
// with both kinds of whiteouts.
func TestBuilders(t *testing.T) {
	if _, err := exec.LookPath("umoci"); err != nil {
		need.Lacking(t, "needs umoci: "+err.Error())
	}
	base := newOSTree(t)
	dir := filepath.Join(t.TempDir(), "image")
	at, err := layout.Write(dir, empty.Index)
	if err == nil {
		err = at.AppendImage(base.encapsulated(), layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": "os"}))
	}
	base.must(err)
	added := &osTree{t: t, dir: t.TempDir()}
	added.write("conf.d/two", "2")
	added.write("tool", "new")
	added.chmod("tool", 0o4755)
	added.xattr("tool", "user.key", "value")
	added.link("link", "tool")
	base.must(os.Link(added.path("tool"), added.path("tool-too")))
	for _, args := range [][]string{
		{"insert", "--image", dir + ":os", added.path("tool"), "/usr/bin/tool"},
		{"insert", "--image", dir + ":os", added.dir, "/usr/share/added"},
		{"insert", "--image", dir + ":os", "--opaque", added.path("conf.d"), "/etc/conf.d"},
		{"insert", "--image", dir + ":os", "--whiteout", "/usr/share/dir/sub"},
	} {
		if out, err := exec.Command("umoci", args...).CombinedOutput(); err != nil {
			t.Fatalf("umoci %q: %v\n%s", args, err, out)
		}
	}

	repo := bare(t)
	result, err := newLocalHost(t).importRef(parse(t, "oci:"+dir+":os"), repo)
	base.must(err)
	ostreeTool(t, "fsck", "--repo="+repo)
	want := base.copy()
	want.remove("usr/etc/conf.d")
	want.write("usr/etc/conf.d/two", "2")
	want.remove("usr/share/dir/sub")
	for _, name := range []string{"usr/bin/tool", "usr/share/added/tool", "usr/share/added/tool-too"} {
		want.write(name, "new")
		want.chmod(name, 0o4755)
		want.xattr(name, "user.key", "value")
	}
	want.write("usr/share/added/conf.d/two", "2")
	want.link("usr/share/added/link", "tool")
	info, err := os.Stat(added.dir)
	base.must(err)
	base.must(os.Chmod(want.path("usr/share/added"), info.Mode().Perm()))
	sameTree(t, repo, result.Commit, want)
}
