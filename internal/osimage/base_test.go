package osimage_test

import (
	"reflect"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"machine-pivot/internal/osimage"
	"machine-pivot/test/worlds/oscontainer"
	"machine-pivot/test/worlds/ostreetree"
	"machine-pivot/test/worlds/registry"
)

// TestBase (P50) checks what an image states about its base.
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

// annotated returns an image in OCI format with annotations in its manifest.
func annotated(img v1.Image, annotations map[string]string) v1.Image {
	img = mutate.ConfigMediaType(mutate.MediaType(img, types.OCIManifestSchema1), types.OCIConfigJSON)
	return mutate.Annotations(img, annotations).(v1.Image)
}

// TestKernelArguments: an import reports the kernel arguments that the image brings for the
// puller's architecture.
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
