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
	// Layered is an ostree-native container with derived layers on top, which a container
	// build has added.
	Layered Format = "layered"
	// Plain is an ordinary container image of a whole OS, without an ostree commit. All of
	// its layers are derived layers.
	Plain Format = "plain"
	// Unknown is an image without any of the labels. It may still be a legacy image.
	Unknown Format = "unknown"
)

// Native reports whether rpm-ostree and bootc can use an image of this format. They support
// all known formats except Legacy.
func (f Format) Native() bool { return f == Encapsulated || f == Layered || f == Plain }

// The labels that distinguish the formats, besides layer.LegacyLabel, and those with a version.
const (
	labelFinalDiffID  = "ostree.final-diffid"
	labelNativeCommit = "ostree.commit"
	labelBootable     = "ostree.bootable"
	labelBootc        = "containers.bootc"
	labelOCIVersion   = "org.opencontainers.image.version"
	labelVersion      = "version"
)

// Layer is a layer as stored in the registry.
type Layer struct {
	Digest string `json:"digest"`
	Size   int64  `json:"size"` // compressed bytes
}

// Image is a resolved image. Its JSON form is that of `pivot image inspect`.
type Image struct {
	Reference    imageref.Reference `json:"reference"`              // pinned to Digest
	Source       imageref.Reference `json:"source,omitzero"`        // the mirror, or path below Puller.Root, that it was read from; zero if Reference itself
	Policy       string             `json:"policy"`                 // the rule of the signature policy that accepted it
	Digest       string             `json:"digest"`                 // of the manifest, or manifest list, that the reference names
	Instance     string             `json:"instance,omitempty"`     // of this platform's manifest, if Digest is a manifest list
	Architecture string             `json:"architecture,omitempty"` // as in GOARCH; "" if the image does not state it
	Format       Format             `json:"format"`
	Commit       string             `json:"commit"`            // "" if only the layers reveal it
	Version      string             `json:"version"`           // from the image's labels
	Base         *Base              `json:"base,omitempty"`    // the image it was built on; nil if unknown
	Derived      int                `json:"derived,omitempty"` // the number of derived layers; they are the last ones
	Layers       []Layer            `json:"layers"`
	Bytes        int64              `json:"bytes"` // of all layers
}

// Base describes the image that an image was built on, as stated by the image itself. After
// several builds it is the base of the last build; of earlier bases only the ostree commit is
// known.
type Base struct {
	Name   string `json:"name,omitempty"`   // as in the registry
	Digest string `json:"digest,omitempty"` // of its manifest
	Commit string `json:"commit,omitempty"` // the ostree commit below the derived layers
	Layers int    `json:"layers,omitempty"` // the number of layers of that commit; they are the first ones
}

// baseOf returns what an image states about its base, or nil. Annotations of the manifest,
// which builders write anew for each image, take precedence over labels, which an image may
// have inherited from its base.
func baseOf(image *source.Image, i Image) *Base {
	value := func(key string) string { return cmp.Or(image.Annotations[key], image.Labels[key]) }
	b := Base{Name: value(imgspec.AnnotationBaseImageName), Digest: value(imgspec.AnnotationBaseImageDigest)}
	if i.Format == Layered {
		b.Commit, b.Layers = i.Commit, len(i.Layers)-i.Derived
	}
	if b == (Base{}) {
		return nil
	}
	return &b
}

// imageOf describes an open image by its manifest and config.
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

// formatOf returns the format that the labels stand for. The legacy label is checked last,
// because native images may have inherited it from a base.
func formatOf(labels map[string]string, layers []source.Layer) Format {
	if _, ok := labels[labelFinalDiffID]; ok {
		if n := len(layers); n > 0 && finalLayer(labels, layers) == n-1 {
			return Encapsulated
		}
		return Layered
	}
	for _, label := range []string{labelNativeCommit, labelBootable, labelBootc} {
		if _, ok := labels[label]; ok {
			return Plain // no label declares any layer part of a commit
		}
	}
	if labels[layer.LegacyLabel] != "" {
		return Legacy
	}
	return Unknown
}

// finalLayer returns the index of the last layer that is part of the commit, or -1 if no
// layer has the diff ID that the label names.
func finalLayer(labels map[string]string, layers []source.Layer) int {
	return slices.IndexFunc(layers, func(l source.Layer) bool { return l.DiffID == labels[labelFinalDiffID] })
}
