package osimage

import (
	imgspec "github.com/opencontainers/image-spec/specs-go/v1"

	"machine-pivot/osimage/imageref"
	"machine-pivot/osimage/layer"
)

// Format is how an image carries its ostree commit.
type Format string

// The formats.
const (
	// Legacy is an archive repository at /srv/repo.
	Legacy Format = "legacy"
	// Encapsulated is an ostree-native container as exported: each layer is part of the commit.
	Encapsulated Format = "encapsulated"
	// Layered is an ostree-native container with further layers on top, or with no others.
	Layered Format = "layered"
	// Unknown is an image whose labels tell nothing. It may still be a legacy one.
	Unknown Format = "unknown"
)

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
	Architecture string             `json:"architecture,omitempty"` // as in GOARCH
	Format       Format             `json:"format"`
	Commit       string             `json:"commit"`  // "" if only the layers tell
	Version      string             `json:"version"` // as the image calls itself
	Layers       []Layer            `json:"layers"`
	Bytes        int64              `json:"bytes"` // of all layers

	asked imageref.Reference // as it was asked for, perhaps by a tag
}

// describe fills in what the image's config tells.
func (i *Image) describe(config *imgspec.Image) {
	labels := config.Config.Labels
	i.Architecture = config.Architecture
	i.Format = formatOf(labels, config.RootFS)
	i.Commit = labels[layer.LegacyLabel]
	if i.Format == Encapsulated || i.Format == Layered {
		i.Commit = labels[labelNativeCommit]
	}
	i.Version = labels[labelOCIVersion]
	if i.Version == "" || i.Format == Legacy && labels[labelVersion] != "" {
		i.Version = labels[labelVersion]
	}
}

// formatOf goes by the labels. A native image may have inherited the legacy
// label, never the other way round.
func formatOf(labels map[string]string, rootfs imgspec.RootFS) Format {
	if final, ok := labels[labelFinalDiffID]; ok {
		if n := len(rootfs.DiffIDs); n > 0 && rootfs.DiffIDs[n-1].String() == final {
			return Encapsulated
		}
		return Layered
	}
	for _, label := range []string{labelNativeCommit, labelBootable, labelBootc} {
		if _, ok := labels[label]; ok {
			return Layered // none of its layers is said to be part of a commit
		}
	}
	if labels[layer.LegacyLabel] != "" {
		return Legacy
	}
	return Unknown
}
