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
	// Unknown is an image whose labels tell nothing. It may still be a legacy one.
	Unknown Format = "unknown"
)

// Native reports whether rpm-ostree and bootc take an image of this format as their
// own: all but legacy ones.
func (f Format) Native() bool { return f == Encapsulated || f == Layered || f == Plain }

// The labels that tell the formats apart, beside layer.LegacyLabel.
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
	Source       imageref.Reference `json:"source,omitzero"`        // where it was read from, if not there: a mirror
	Policy       string             `json:"policy"`                 // the rule of the signature policy that accepted it
	Digest       string             `json:"digest"`                 // of the manifest, or manifest list, that the reference names
	Instance     string             `json:"instance,omitempty"`     // of this platform's manifest, if Digest is a manifest list
	Architecture string             `json:"architecture,omitempty"` // as in GOARCH; "" if it says none
	Format       Format             `json:"format"`
	Commit       string             `json:"commit"`            // "" if only the layers tell
	Version      string             `json:"version"`           // as the image calls itself
	Base         *Base              `json:"base,omitempty"`    // what it was built on; nil if it does not say
	Derived      int                `json:"derived,omitempty"` // how many of the layers, the last ones, are no part of an ostree commit
	Layers       []Layer            `json:"layers"`
	Bytes        int64              `json:"bytes"` // of all layers
}

// Base is what an image says of the image that it was built on. The last build counts;
// of earlier ones only the ostree commit is known.
type Base struct {
	Name   string `json:"name,omitempty"`   // as in the registry
	Digest string `json:"digest,omitempty"` // of its manifest
	Commit string `json:"commit,omitempty"` // the ostree commit below the derived layers
	Layers int    `json:"layers,omitempty"` // how many of the layers, the first ones, are that commit's
}

// baseOf goes by the annotations of the manifest, which builders write for each image
// anew, and only then by labels, which an image inherits from its base.
func baseOf(opened *source.Image, i Image) *Base {
	said := func(key string) string { return cmp.Or(opened.Annotations[key], opened.Labels[key]) }
	b := Base{Name: said(imgspec.AnnotationBaseImageName), Digest: said(imgspec.AnnotationBaseImageDigest)}
	if i.Format == Layered {
		b.Commit, b.Layers = i.Commit, len(i.Layers)-i.Derived
	}
	if b == (Base{}) {
		return nil
	}
	return &b
}

// describe is an open image as its manifest and config say.
func describe(opened *source.Image) Image {
	labels := opened.Labels
	i := Image{
		Reference: opened.Reference, Source: opened.From, Policy: opened.Policy, Digest: opened.Digest, Instance: opened.Instance,
		Architecture: statedBy(opened).architecture, Format: formatOf(labels, opened.Layers), Commit: labels[layer.LegacyLabel],
		Version: labels[labelOCIVersion], Layers: make([]Layer, len(opened.Layers)),
	}
	switch i.Format {
	case Encapsulated, Layered:
		i.Commit = labels[labelNativeCommit]
		i.Derived = len(i.Layers) - 1 - finalLayer(labels, opened.Layers)
	case Plain:
		i.Commit, i.Derived = "", len(i.Layers)
	}
	i.Base = baseOf(opened, i)
	if i.Version == "" || i.Format == Legacy && labels[labelVersion] != "" {
		i.Version = labels[labelVersion]
	}
	for n, l := range opened.Layers {
		i.Layers[n] = Layer{Digest: l.Digest, Size: l.Size}
		i.Bytes += max(l.Size, 0)
	}
	return i
}

// formatOf goes by the labels. A native image may have inherited the legacy
// label, never the other way round.
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

// finalLayer is the index of the last layer that is part of the commit, or -1 if
// there is none with the diff ID that the label says.
func finalLayer(labels map[string]string, layers []source.Layer) int {
	return slices.IndexFunc(layers, func(l source.Layer) bool { return l.DiffID == labels[labelFinalDiffID] })
}
