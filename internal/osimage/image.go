package osimage

import (
	"cmp"
	"slices"

	imgspec "github.com/opencontainers/image-spec/specs-go/v1"

	"machine-pivot/internal/osimage/imageref"
	"machine-pivot/internal/osimage/layer"
	"machine-pivot/internal/osimage/source"
)

// Format is how an image carries its ostree commit.
type Format string

// The formats.
const (
	// Legacy is an archive repository at /srv/repo.
	Legacy Format = "legacy"
	// Encapsulated is an ostree-native container as exported: each layer is part of the commit.
	Encapsulated Format = "encapsulated"
	// Layered is an ostree-native container with further layers on top: those that a
	// container build has added, its derived layers.
	Layered Format = "layered"
	// Plain is an ordinary container image of a whole OS, without an ostree commit: all
	// of its layers are derived ones.
	Plain Format = "plain"
	// Unknown is an image without any of the labels. It may still be a legacy one.
	Unknown Format = "unknown"
)

// Native reports whether rpm-ostree and bootc take an image of this format as their
// own: all but legacy ones.
func (f Format) Native() bool { return f == Encapsulated || f == Layered || f == Plain }

// The labels by which formats are told apart, with layer.LegacyLabel.
const (
	labelFinalDiffID  = "ostree.final-diffid"
	labelNativeCommit = "ostree.commit"
	labelBootable     = "ostree.bootable"
	labelBootc        = "containers.bootc"
	labelOCIVersion   = "org.opencontainers.image.version"
	labelVersion      = "version"
)

// Layer is a layer as it is in the registry.
type Layer struct {
	Digest string `json:"digest"`
	Size   int64  `json:"size"` // compressed bytes; -1 if the manifest does not say
}

// Image is a resolved image. Its JSON form is that of `pivot image inspect`.
type Image struct {
	Reference    imageref.Reference `json:"reference"`              // pinned to Digest
	Source       imageref.Reference `json:"source,omitzero"`        // the mirror that it was read from; zero if it was none
	Policy       string             `json:"policy"`                 // the rule of the signature policy that accepted it
	Digest       string             `json:"digest"`                 // of the manifest, or manifest list, that the reference names
	Instance     string             `json:"instance,omitempty"`     // of this platform's manifest, if Digest is a manifest list
	Architecture string             `json:"architecture,omitempty"` // as in GOARCH; "" if it says none
	Format       Format             `json:"format"`
	Commit       string             `json:"commit"`            // "" if it is known only from the layers
	Version      string             `json:"version"`           // as the image calls itself
	Base         *Base              `json:"base,omitempty"`    // what it was built on; nil if it does not say
	Derived      int                `json:"derived,omitempty"` // how many of the layers, the last ones, are no part of an ostree commit
	Layers       []Layer            `json:"layers"`
	Bytes        int64              `json:"bytes"` // of all layers
}

// Base is what an image says about the image that it was built on. After several builds it
// is the base of the last one; of earlier bases only the ostree commit is known.
type Base struct {
	Name   string `json:"name,omitempty"`   // as in the registry
	Digest string `json:"digest,omitempty"` // of its manifest
	Commit string `json:"commit,omitempty"` // the ostree commit below the derived layers
	Layers int    `json:"layers,omitempty"` // how many of the layers, the first ones, are that commit's
}

// baseOf reads annotations of the manifest, which builders write anew for each image, and
// only where there are none labels, which an image may have inherited from its base.
func baseOf(image *source.Image, i Image) *Base {
	said := func(key string) string { return cmp.Or(image.Annotations[key], image.Labels[key]) }
	b := Base{Name: said(imgspec.AnnotationBaseImageName), Digest: said(imgspec.AnnotationBaseImageDigest)}
	if i.Format == Layered {
		b.Commit, b.Layers = i.Commit, len(i.Layers)-i.Derived
	}
	if b == (Base{}) {
		return nil
	}
	return &b
}

// imageOf is what manifest and config say about an open image.
func imageOf(image *source.Image) Image {
	labels := image.Labels
	i := Image{
		Reference: image.Reference, Source: image.From, Policy: image.Policy, Digest: image.Digest, Instance: image.Instance,
		Architecture: statedBy(image).architecture, Format: formatOf(labels, image.Layers), Commit: labels[layer.LegacyLabel],
		Version: labels[labelOCIVersion], Layers: make([]Layer, len(image.Layers)),
	}
	switch i.Format {
	case Encapsulated, Layered:
		i.Commit = labels[labelNativeCommit]
		i.Derived = len(i.Layers) - 1 - finalLayer(labels, image.Layers)
	case Plain:
		i.Commit, i.Derived = "", len(i.Layers)
	}
	i.Base = baseOf(image, i)
	if i.Version == "" || i.Format == Legacy && labels[labelVersion] != "" {
		i.Version = labels[labelVersion]
	}
	for n, l := range image.Layers {
		i.Layers[n] = Layer{Digest: l.Digest, Size: l.Size}
		i.Bytes += max(l.Size, 0)
	}
	return i
}

// formatOf is the format that the labels stand for. Native images may have inherited the
// legacy label from a base, so that one counts last.
func formatOf(labels map[string]string, layers []source.Layer) Format {
	if _, ok := labels[labelFinalDiffID]; ok {
		if n := len(layers); n > 0 && finalLayer(labels, layers) == n-1 {
			return Encapsulated
		}
		return Layered
	}
	for _, label := range []string{labelNativeCommit, labelBootable, labelBootc} {
		if _, ok := labels[label]; ok {
			return Plain // none of its layers is said to be part of a commit
		}
	}
	if labels[layer.LegacyLabel] != "" {
		return Legacy
	}
	return Unknown
}

// finalLayer is the index of the last layer that is part of the commit; -1 if no layer has
// the diff ID that the label names.
func finalLayer(labels map[string]string, layers []source.Layer) int {
	return slices.IndexFunc(layers, func(l source.Layer) bool { return l.DiffID == labels[labelFinalDiffID] })
}
