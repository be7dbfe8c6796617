package osimage_test

import (
	"archive/tar"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"machine-pivot/internal/fault"
	"machine-pivot/test/tools/sample"
	"machine-pivot/test/worlds/oscontainer"
	"machine-pivot/test/worlds/registry"
)

// refuses checks that an image is refused and leaves only complete layers behind.
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

// TestPlainRefused is TestDerivedRefused for an image without an ostree commit.
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
		{"a disk", []entry{{Header: tar.Header{Name: "usr/lib/disk", Typeflag: tar.TypeBlock}}}, fault.BadInput, `"usr/lib/disk": an entry of type`},
		{"upwards", []entry{regular("../x", "x")}, fault.BadInput, "leads upwards"},
		{"not UTF-8", []entry{regular("opt/\xff", "x")}, fault.BadInput, "UTF-8"},
		{"two kernels", []entry{regular("usr/lib/modules/6.2.0/vmlinuz", "k")}, fault.Refused, "2 kernels (6.1.0, 6.2.0)"},
		{"no release", []entry{gone("usr/lib/os-release")}, fault.Refused, "no PRETTY_NAME or ID"},
		{"signed", []entry{regular(prepareRoot, "[composefs]\nenabled = signed\n")}, fault.Refused, "boots only what is signed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			sample.Short(t, 8)
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
