package osimage_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"

	"machine-pivot/internal/osimage/imageref"
	"machine-pivot/test/tools/need"
	"machine-pivot/test/worlds/oscontainer"
	"machine-pivot/test/worlds/registry"
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

// TestChunkedByBuilders uses layers in the format zstd:chunked as skopeo of this machine's distribution writes it. Releases
// up to that of Debian 12 write no skeleton of the archive.
func TestChunkedByBuilders(t *testing.T) {
	if _, err := exec.LookPath("skopeo"); err != nil {
		need.Lacking(t, "needs skopeo: "+err.Error())
	}
	u := newUpdate(t)
	for name, images := range map[string][2]v1.Image{
		"encapsulated": {u.before.encapsulated(), u.after.encapsulated()},
		"plain":        {plainImage(t, u.before, 3), plainImage(t, u.after, 3)},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t, registry.Options{})
			h.stores = true
			var refs [2]imageref.Reference
			for n, version := range []string{"before", "after"} {
				layout := t.TempDir()
				u.before.must(oscontainer.WriteLayout(layout, images[n]))
				refs[n] = h.ref(version)
				h.copyBySkopeo(layout, "docker://"+h.registry.Host()+"/test/os:"+version)
			}
			want, size := h.whole(refs[1])
			repo := bare(t)
			if _, err := h.importRef(refs[0], repo); err != nil {
				t.Fatal(err)
			}
			sent := h.updates(repo, refs[1], want)
			if sent > size/6 || strings.Contains(h.logged(), "fetched whole") {
				t.Errorf("the registry has sent %d bytes for an image of %d; log:\n%s", sent, size, h.logged())
			}
			t.Logf("%d of %d bytes", sent, size)
		})
	}
}

// copyBySkopeo copies an image from a layout and has it compressed as zstd:chunked.
func (h *host) copyBySkopeo(layout, to string) {
	h.t.Helper()
	h.write("policy.json", `{"default": [{"type": "insecureAcceptAnything"}]}`)
	out, err := exec.Command("skopeo", "--policy", filepath.Join(h.root, "policy.json"), "copy", "--dest-compress-format=zstd:chunked", "--format=oci",
		"--dest-cert-dir="+filepath.Join(h.root, "etc/containers/certs.d", h.registry.Host()), "--authfile="+filepath.Join(h.root, "var/lib/kubelet/config.json"),
		"oci:"+layout, to).CombinedOutput()
	if err != nil {
		h.t.Fatalf("skopeo: %v\n%s", err, out)
	}
}
