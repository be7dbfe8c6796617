package osimage_test

import (
	"runtime"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"

	"machine-pivot/internal/fault"
	"machine-pivot/test/worlds/oscontainer"
	"machine-pivot/test/worlds/registry"
)

// TestArchitecture: an image that states another platform is refused before a layer is
// fetched; an image that states none is not.
func TestArchitecture(t *testing.T) {
	h := newHost(t, registry.Options{})
	for i, c := range []struct {
		machine, label            string // the machine's architecture, and the image's label
		os, architecture, variant string // in the image's config
		refused                   string
	}{
		{machine: "x86_64", os: "linux", architecture: "amd64"},
		{machine: "x86_64", os: "linux", architecture: "s390x", refused: "it is for linux/s390x, but the machine is linux/amd64"},
		{machine: "s390x", os: "linux", architecture: "s390x"},
		{machine: "s390x", os: "linux", architecture: "amd64", refused: "it is for linux/amd64"},
		{machine: "aarch64", os: "linux", architecture: "arm64", variant: "v8"},
		{machine: "aarch64", os: "linux", architecture: "arm", variant: "v7", refused: "linux/arm/v7"},
		{machine: "ppc64le", os: "linux", architecture: "ppc64", refused: "linux/ppc64"},
		{machine: "armv7l", os: "linux", architecture: "arm", variant: "v6"},
		{machine: "armv6l", os: "linux", architecture: "arm", variant: "v7", refused: "it is for linux/arm/v7, but the machine is linux/arm/v6"},
		{machine: "x86_64", os: "windows", architecture: "amd64", refused: "it is for windows/amd64"},
		// Other common names.
		{machine: "x86_64", os: "linux", architecture: "x86_64"},
		{machine: "amd64", os: "Linux", architecture: "x86-64"},
		{machine: "aarch64", os: "linux", architecture: "aarch64"},
		{machine: "i686", os: "linux", architecture: "386"},
		// The label counts only if the config does not state the architecture.
		{machine: "x86_64", label: "x86_64"},
		{machine: "x86_64", label: "s390x", refused: "it is for linux/s390x"},
		{machine: "x86_64", label: "s390x", os: "linux", architecture: "amd64"},
		// Nothing is stated.
		{machine: "x86_64"},
		{machine: "", os: "linux", architecture: runtime.GOARCH},
		{machine: "", os: "linux", architecture: "mips", refused: "linux/mips"},
	} {
		img := plain(t, oscontainer.WithLabel("architecture", c.label))
		ref, _ := h.push("x"+string(rune('a'+i)), stating(t, img, c.os, c.architecture, c.variant))
		h.puller.Architecture = c.machine
		image, err := h.puller.Open(t.Context(), ref)
		if err != nil {
			t.Fatal(err)
		}
		repo := openRepo(t, bare(t))
		requests := h.registry.Requests()
		_, imported := image.Import(t.Context(), repo, nil)
		switch _, checked := image.Check(t.Context(), repo); {
		case c.refused != "":
			refused(t, checked, fault.Refused, c.refused, "use the image that is built for linux/")
			refused(t, imported, fault.Refused, c.refused, "use the image that is built for linux/")
		case checked != nil || fault.KindOf(imported) != fault.BadInput: // it is an image without objects
			t.Errorf("%+v: %v, %v", c, checked, imported)
		}
		if fetched := h.registry.Requests() - requests; c.refused != "" && fetched != 0 {
			t.Errorf("%+v: %d requests", c, fetched)
		}
		_ = image.Close()
	}
}

// stating returns an image with another platform in its config.
func stating(t *testing.T, img v1.Image, os, architecture, variant string) v1.Image {
	t.Helper()
	config, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Variant = os, architecture, variant
	if img, err = mutate.ConfigFile(img, config); err != nil {
		t.Fatal(err)
	}
	return img
}
