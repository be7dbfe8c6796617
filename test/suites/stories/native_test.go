package stories_test

import (
	"archive/tar"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/ostree"
	"machine-pivot/test/tools/sample"
	"machine-pivot/test/worlds/hostdir"
	"machine-pivot/test/worlds/oscontainer"
	"machine-pivot/test/worlds/ostreetree"
	"machine-pivot/test/worlds/rpmostree"
)

// serve pushes an image and asks for it.
func serve(t *testing.T, h *hostdir.Host, img v1.Image) {
	t.Helper()
	h.Serve(img)
	ask(t, h)
}

// ostreeTool runs the real ostree and returns what it prints.
func ostreeTool(t *testing.T, args ...string) string {
	t.Helper()
	out, err := ostreetree.Ostree(args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestComposefsDemanded: an image that boots only with composefs is refused before anything is
// deployed, and leaves nothing behind, if ostree does not support composefs. It is also
// refused if ostree claims support but makes no composefs image.
func TestComposefsDemanded(t *testing.T) {
	demands := oscontainer.WithDerived(oscontainer.File("usr/lib/ostree/prepare-root.conf", "[composefs]\nenabled = yes\n"))
	h := newHost(t)
	serve(t, h, h.NativeImage(demands))
	refused := func(why string) {
		t.Helper()
		if err := boot(t, h); fault.KindOf(err) != fault.Refused || !strings.Contains(err.Error(), why) || fault.HintOf(err) == "" {
			t.Errorf("error %v", err)
		}
		if h.Reboots != 0 {
			t.Errorf("%d reboots", h.Reboots)
		}
	}
	refused("boots only from an image of composefs")
	if len(h.Ostree.Calls) != 0 {
		t.Errorf("calls %v", h.Ostree.Calls)
	}
	for _, ref := range h.Refs() {
		if strings.HasPrefix(ref, "pivot/") || strings.HasPrefix(ref, "ostree/container/image/") {
			t.Errorf("ref %s is left", ref)
		}
	}
	h.Ostree.Version, h.Ostree.Features = "2025.2", "  - composefs\n"
	refused("there is no .ostree.cfs")
	if staged, err := h.Sysroot().Staged(); staged != nil || err != nil {
		t.Errorf("staged %v, %v", staged, err)
	}
	h.Ostree.Composefs = true
	if err := boot(t, h); err != nil {
		t.Fatal(err)
	}
	h.Boot()
	expectNew(t, h)
}

// TestNativeImage: an ostree-native container, with or without derived layers, and an
// image without an ostree commit are imported once, and rpm-ostree deploys the imported
// commit. Its daemon cannot ask the registry, because only kubelet has the pull secret.
// An rpm-ostree without container support is not used (P5). Each time there is one reboot,
// and rpm-ostree and bootc recognize the image as one that they imported.
func TestNativeImage(t *testing.T) {
	changes := oscontainer.WithDerived(oscontainer.File("usr/share/derived", "derived"), oscontainer.File("etc/derived.conf", "derived"))
	native := func(h *hostdir.Host) v1.Image { return h.NativeImage() }
	derived := func(h *hostdir.Host) v1.Image { return h.NativeImage(oscontainer.WithChunks(2), changes) }
	plain := func(h *hostdir.Host) v1.Image { return h.PlainImage(3, changes) }
	for _, c := range []struct {
		name, engine, version, packages string
		rebase                          bool
		image                           func(*hostdir.Host) v1.Image
		changed                         bool
	}{
		{"by rpm-ostree", "rpm-ostree", "2026.2", "", true, native, false},
		{"with packages", "auto", "2026.2", "strace;", true, native, false},
		{"by a rpm-ostree without containers", "rpm-ostree", "2021.14", "", false, native, false},
		{"beside rpm-ostree", "auto", "2026.2", "", false, native, false},
		{"with a derived layer", "auto", "2026.2", "", false, derived, true},
		{"with a derived layer, by rpm-ostree", "rpm-ostree", "2026.2", "", true, derived, true},
		{"with a derived layer and packages", "auto", "2026.2", "strace;", true, derived, true},
		{"plain, by rpm-ostree", "rpm-ostree", "2026.2", "", true, plain, true},
		{"plain, with packages", "auto", "2026.2", "strace;", true, plain, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			sample.Short(t, 8)
			h := newHost(t)
			h.InstallRpmOstree(rpmostree.Control{Version: c.version})
			if c.packages != "" {
				h.Layer(c.packages)
			}
			h.ReadOnlyTmp()
			serve(t, h, c.image(h))
			notes, err := bootWith(t, h, c.engine)
			if err != nil {
				t.Fatal(err, fault.HintOf(err), notes)
			}
			if rebased := strings.Contains(strings.Join(verbsOf(t, h), " "), "rebase"); rebased != c.rebase {
				t.Errorf("calls %q, notes %s", verbsOf(t, h), notes)
			}
			h.Boot()
			if _, err := bootWith(t, h, c.engine); err != nil {
				t.Fatal(err)
			}
			expectNew(t, h)
			expectClosed(t, h)
			if h.Reboots != 1 {
				t.Errorf("%d reboots asked for", h.Reboots)
			}
			booted := expectRecognized(t, h)
			if got := string(h.Read("/etc/derived.conf")); c.changed != (got == "derived") {
				t.Errorf("the derived layer's file: %q", got)
			}
			if got := booted.Origin.Value("packages", "requested"); got != c.packages || (booted.Checksum == booted.Base) != (c.packages == "") {
				t.Errorf("packages %q on %s, booted %s", got, booted.Base, booted.Checksum)
			}
		})
	}
}

// expectRecognized checks that rpm-ostree and bootc recognize the booted image. The origin names it, its ref leads to a
// commit with its manifest, and each layer in the manifest has a ref to a complete commit. From these the next update
// knows what it need not fetch.
func expectRecognized(t *testing.T, h *hostdir.Host) ostree.Deployment {
	t.Helper()
	booted, err := h.Sysroot().Booted()
	if err != nil {
		t.Fatal(err)
	}
	reference := "ostree-unverified-registry:" + h.Image
	if booted.Origin.ContainerImageReference() != reference {
		t.Errorf("origin %s", booted.Origin.Bytes())
	}
	repo := "--repo=" + h.Sysroot().RepoPath()
	image := ostreeTool(t, "rev-parse", repo, rpmostree.ImageRef(reference))
	if image != booted.Base.String() {
		t.Errorf("the image's ref leads to %s, booted is %s", image, booted.Base)
	}
	metadata := func(key string) string {
		text := ostreeTool(t, "show", repo, "--print-metadata-key="+key, image)
		return strings.ReplaceAll(strings.Trim(text, "'"), `\"`, `"`)
	}
	if digest := metadata("ostree.manifest-digest"); !strings.HasSuffix(h.Image, "@"+digest) {
		t.Errorf("digest %q of image %s", digest, h.Image)
	}
	manifest, err := v1.ParseManifest(strings.NewReader(metadata("ostree.manifest")))
	if err != nil || len(manifest.Layers) == 0 {
		t.Fatalf("manifest %+v, %v", manifest, err)
	}
	const blobs = "ostree/container/blob"
	refs := strings.Fields(ostreeTool(t, "refs", repo, "--list", blobs))
	for _, layer := range manifest.Layers {
		if ref := blobs + "/" + strings.Replace(layer.Digest.String(), ":", "_3A_", 1); !slices.Contains(refs, ref) {
			t.Errorf("layer %s has no ref", layer.Digest)
		}
	}
	ostreeTool(t, "fsck", repo) // checks that each ref leads to a complete commit
	return booted
}

// TestDerivedRefused (P6): an image that cannot boot is refused before anything is
// deployed, and the machine does not change.
func TestDerivedRefused(t *testing.T) {
	for _, c := range []struct {
		name string
		file oscontainer.Entry
		kind fault.Kind
		want string
	}{
		{"two kernels", oscontainer.File("usr/lib/modules/6.2/vmlinuz", "k"), fault.Refused, "2 kernels (6.1, 6.2)"},
		{"no name", oscontainer.File("usr/lib/os-release", "VERSION=x\n"), fault.Refused, "no PRETTY_NAME or ID"},
		{"signed", oscontainer.File("usr/lib/ostree/prepare-root.conf", "[composefs]\nenabled = signed\n"), fault.Refused, "boots only what is signed"},
		{"a pipe", oscontainer.Entry{Header: tar.Header{Name: "usr/fifo", Typeflag: tar.TypeFifo}}, fault.BadInput, `"usr/fifo"`},
		{"upwards", oscontainer.File("../x", "x"), fault.BadInput, "leads upwards"},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHost(t)
			serve(t, h, h.NativeImage(oscontainer.WithDerived(c.file)))
			if err := boot(t, h); fault.KindOf(err) != c.kind || !strings.Contains(err.Error(), c.want) || fault.HintOf(err) == "" {
				t.Errorf("error %v (%s)", err, fault.HintOf(err))
			}
			if h.Reboots != 0 || len(h.Ostree.Calls) != 0 {
				t.Errorf("%d reboots, calls %v", h.Reboots, h.Ostree.Calls)
			}
			expectOld(t, h)
			if kept, err := filepath.Glob(h.Path("/sysroot/ostree/repo/refs/heads/pivot/*")); err != nil || len(kept) > 0 {
				t.Errorf("refs %q, %v", kept, err)
			}
		})
	}
}
