package osimage_test

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/osimage"
	"machine-pivot/internal/ostree"
	"machine-pivot/test/tools/sample"
	"machine-pivot/test/worlds/oscontainer"
	"machine-pivot/test/worlds/ostreetree"
	"machine-pivot/test/worlds/registry"
)

// TestAccept checks for each format that Accept is called with the image's prepare-root.conf,
// and that a refused image leaves only complete layers behind.
func TestAccept(t *testing.T) {
	const demands = "[composefs]\nenabled=yes\n"
	h := newHost(t, registry.Options{})
	with := func(t *testing.T, path, text string) *osTree {
		o := newOSTree(t)
		o.write(path, text)
		return o
	}
	linked := func(t *testing.T) *osTree {
		o := with(t, "usr/share/o/prepare-root.conf", demands)
		o.link("usr/lib/ostree", "/usr/share/o")
		return o
	}
	derive := func(t *testing.T, image v1.Image, text string) v1.Image {
		img, err := oscontainer.Derive(image, oscontainer.WithDerived(regular(prepareRoot, text)), oscontainer.WithWorkDir(t.TempDir()))
		if err != nil {
			t.Fatal(err)
		}
		return img
	}
	for _, c := range []struct {
		name  string
		image func(t *testing.T) v1.Image
		want  ostree.Demands
	}{
		{"encapsulated", func(t *testing.T) v1.Image { return with(t, prepareRoot, demands).encapsulated() }, ostree.Demands{Composefs: true}},
		{"encapsulated, not demanded", func(t *testing.T) v1.Image { return newOSTree(t).encapsulated() }, ostree.Demands{}},
		{"by the file in etc", func(t *testing.T) v1.Image {
			return with(t, "usr/etc/ostree/prepare-root.conf", demands).encapsulated()
		}, ostree.Demands{Composefs: true}},
		{"by the file that a link in etc leads to", func(t *testing.T) v1.Image {
			o := with(t, prepareRoot, demands)
			o.link("usr/etc/ostree/prepare-root.conf", "../../lib/ostree/prepare-root.conf")
			return o.encapsulated()
		}, ostree.Demands{Composefs: true}},
		{"in a directory that is a link", func(t *testing.T) v1.Image { return linked(t).encapsulated() }, ostree.Demands{Composefs: true}},
		{"in a directory that is a link, plain", func(t *testing.T) v1.Image { return plainImage(t, linked(t), 3) }, ostree.Demands{Composefs: true}},
		{"by a derived layer", func(t *testing.T) v1.Image { return derive(t, newOSTree(t).encapsulated(), demands) }, ostree.Demands{Composefs: true}},
		{"no more, by a derived layer", func(t *testing.T) v1.Image {
			return derive(t, with(t, prepareRoot, demands).encapsulated(), "[composefs]\nenabled=no\n")
		}, ostree.Demands{}},
		{"plain", func(t *testing.T) v1.Image { return plainImage(t, with(t, prepareRoot, "[etc]\ntransient=true\n"), 3) }, ostree.Demands{TransientEtc: true}},
		{"legacy", func(t *testing.T) v1.Image { return legacyImage(t, with(t, prepareRoot, demands)) }, ostree.Demands{Composefs: true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			sample.Short(t, 6)
			h.t = t
			ref, _ := h.push(strings.NewReplacer(" ", "-", ",", "").Replace(c.name), c.image(t))
			repo := bare(t)
			refused := errors.New("refused")
			var got ostree.Demands
			try := func(answer error) (osimage.Result, error) {
				image, err := h.puller.Open(t.Context(), ref)
				if err != nil {
					t.Fatal(err)
				}
				defer image.Close()
				image.Accept = func(p ostree.PrepareRoot) error {
					got = p.Demands()
					return answer
				}
				return image.Import(t.Context(), openRepo(t, repo), nil)
			}
			if _, err := try(refused); !errors.Is(err, refused) || strings.Contains(err.Error(), "layer ") || got != c.want {
				t.Errorf("error %v, told %+v, want %+v", err, got, c.want)
			}
			for ref := range allRefs(t, repo) {
				if !strings.HasPrefix(ref, "ostree/container/blob/") {
					t.Errorf("ref %s is left", ref)
				}
			}
			for range 2 { // the second time nothing is missing
				got = ostree.Demands{}
				result, err := try(nil)
				if err != nil || got != c.want || result.Composefs != c.want.Composefs {
					t.Errorf("%v, told %+v, result %v, want %+v", err, got, result.Composefs, c.want)
				}
			}
		})
	}
}

// legacyImage returns a legacy image of the tree.
func legacyImage(t *testing.T, o *osTree) v1.Image {
	t.Helper()
	commit, archive := o.commit(), filepath.Join(t.TempDir(), "archive")
	ostreeTool(t, "init", "--repo="+archive, "--mode=archive")
	ostreeTool(t, "pull-local", "--repo="+archive, o.repo, commit)
	img, err := oscontainer.Legacy(archive, commit, "1", oscontainer.WithWorkDir(t.TempDir()))
	if err != nil {
		t.Fatal(err)
	}
	return img
}

// TestAcceptEarly: if an image without derived layers is refused, the layers that are not being downloaded yet are not
// fetched.
func TestAcceptEarly(t *testing.T) {
	o := newOSTree(t)
	o.write(prepareRoot, "[composefs]\nenabled=yes\n")
	refusedEarly(t, o, "prepare-root.conf", func(image *osimage.Opened) {
		image.Accept = func(ostree.PrepareRoot) error { return fault.New(fault.Refused, "no") }
	})
}

// refusedEarly imports a tree in many layers; an early one has the file with decides at the end of its name. What setup
// has set must refuse the image, before half of the layers are fetched. The registry sends none of the later layers, so
// that the result does not depend on the speed of the host.
func refusedEarly(t *testing.T, o *osTree, decides string, setup func(*osimage.Opened)) {
	t.Helper()
	const chunks = 60
	h := newHost(t, registry.Options{})
	for n := range 2 * chunks {
		o.write("usr/share/many/"+strings.Repeat("x", n+1), strings.Repeat("y", n+1))
	}
	next := 0
	img, err := oscontainer.Encapsulated(o.repo, o.commit(), oscontainer.WithWorkDir(t.TempDir()),
		oscontainer.WithChunking(chunks, func(_ string, names []string) int {
			if slices.ContainsFunc(names, func(name string) bool { return strings.HasSuffix(name, decides) }) {
				return 1
			}
			next++
			return 1 + next%chunks
		}))
	if err != nil {
		t.Fatal(err)
	}
	ref, _ := h.push("early", img)
	image, err := h.puller.Open(t.Context(), ref)
	if err != nil {
		t.Fatal(err)
	}
	defer image.Close()
	setup(image)
	var late []registry.Rule
	for _, layer := range image.Layers[chunks/3:] {
		late = append(late, registry.Rule{On: layer.Digest, Fault: registry.StallAt(0)})
	}
	h.registry.Spoil(late...)
	before := h.registry.Requests()
	_, err = image.Import(t.Context(), openRepo(t, bare(t)), nil)
	if fault.KindOf(err) != fault.Refused {
		t.Errorf("error %v", err)
	}
	if n := h.registry.Requests() - before; n >= chunks/2 {
		t.Errorf("%d requests for an image of %d layers", n, len(image.Layers))
	}
}

// TestPrepareRootOfNoMeaning: an image with an invalid prepare-root.conf is refused, because it
// would not boot.
func TestPrepareRootOfNoMeaning(t *testing.T) {
	h := newHost(t, registry.Options{})
	o := newOSTree(t)
	o.write(prepareRoot, "[composefs]\nenabled=perhaps\n")
	ref, _ := h.push("meaningless", o.encapsulated())
	_, err := h.importRef(ref, bare(t))
	if fault.KindOf(err) != fault.Refused || !strings.Contains(err.Error(), `composefs.enabled: "perhaps"`) || fault.HintOf(err) == "" {
		t.Errorf("error %v", err)
	}
}

// sign makes the tree's commit one that names its composefs image, signed by a key.
func (o *osTree) sign(seed byte) {
	o.t.Helper()
	digest := strings.TrimSuffix(strings.Repeat("0xab, ", 32), ", ")
	commit, err := ostreetree.Ostree("commit", "--repo="+o.repo, "--orphan", "--tree=ref="+o.commit(), "--add-metadata-string=version=1",
		"--add-metadata-string=ostree.linux=6.1", "--add-metadata=ostree.composefs.digest.v0=[byte "+digest+"]")
	o.must(err)
	key, _ := ostreetree.Key(seed)
	o.must(ostreetree.Sign(o.repo, commit, key))
	o.asMade = commit
}

// TestSignedRoot: an image that demands a signed root is accepted if its own key has signed its commit. Otherwise it is refused
// before it has a ref, and by "pivot image import", which no host has to boot, it is stored.
func TestSignedRoot(t *testing.T) {
	h := newHost(t, registry.Options{})
	_, public := ostreetree.Key(1)
	tree := func(t *testing.T, program string) *osTree {
		o := newOSTree(t)
		o.write(prepareRoot, "[composefs]\nenabled=signed\n")
		o.write("usr/etc/ostree/initramfs-root-binding.key", public)
		o.write("usr/lib/ostree/ostree-prepare-root", program)
		return o
	}
	const newer, older = "Validating composefs using bootc base commit", "an older one"
	for _, c := range []struct {
		name, program string
		image         func(t *testing.T, o *osTree) v1.Image
		want          string
	}{
		{"encapsulated", newer, func(_ *testing.T, o *osTree) v1.Image { o.sign(1); return o.encapsulated() }, ""},
		{"legacy", older, func(t *testing.T, o *osTree) v1.Image { o.sign(1); return legacyImage(t, o) }, ""},
		{"encapsulated, with an older libostree", older, func(_ *testing.T, o *osTree) v1.Image { o.sign(1); return o.encapsulated() }, "older than 2025.7"},
		{"by another key", newer, func(_ *testing.T, o *osTree) v1.Image { o.sign(2); return o.encapsulated() }, "is by its key"},
		{"legacy, by another key", older, func(t *testing.T, o *osTree) v1.Image { o.sign(2); return legacyImage(t, o) }, "is by its key"},
		{"not signed", newer, func(_ *testing.T, o *osTree) v1.Image { return o.encapsulated() }, "of the 0 signatures"},
	} {
		t.Run(c.name, func(t *testing.T) {
			sample.Short(t, 3)
			h.t = t
			ref, _ := h.push("signed-"+strings.NewReplacer(" ", "-", ",", "").Replace(c.name), c.image(t, tree(t, c.program)))
			repo := bare(t)
			try := func(accept func(ostree.PrepareRoot) error) error {
				image, err := h.puller.Open(t.Context(), ref)
				if err != nil {
					t.Fatal(err)
				}
				defer image.Close()
				image.Accept = accept
				_, err = image.Import(t.Context(), openRepo(t, repo), nil)
				return err
			}
			err := try(func(ostree.PrepareRoot) error { return nil })
			if c.want == "" && err != nil {
				t.Error(err)
			}
			if c.want != "" {
				if fault.KindOf(err) != fault.Refused || !strings.Contains(err.Error(), c.want) || fault.HintOf(err) == "" {
					t.Errorf("error %v (%s), want %q", err, fault.HintOf(err), c.want)
				}
				for ref := range allRefs(t, repo) {
					if !strings.HasPrefix(ref, "ostree/container/blob/") {
						t.Errorf("ref %s is left", ref)
					}
				}
			}
			if err := try(nil); err != nil {
				t.Errorf("stored: %v", err)
			}
		})
	}
}
