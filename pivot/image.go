package pivot

import (
	"cmp"
	"encoding/json"

	"machine-pivot/internal/osimage/imageref"
)

// Image is an OS image, pinned to its content.
type Image struct {
	Name   imageref.Reference // by which it was asked for
	Digest string             // sha256:…, of the manifest, or of a manifest list; "": the name is not resolved yet
	// Instance is the digest of the manifest for this platform if Digest is known to be that of a manifest list.
	Instance string
	Commit   string // the image's ostree commit, once known
	Version  string // from the image's metadata
	Native   bool   // it is known to be an ostree-native container, not a legacy image
}

// ImageOf returns the image that a reference names. A tag gives an image without a digest.
func ImageOf(name imageref.Reference) Image {
	return Image{Name: name.Canonical(), Digest: name.Digest()}
}

// IsZero reports whether there is no image at all.
func (i Image) IsZero() bool { return i == Image{} }

// Same reports whether two images have the same digest. Their references may differ, for
// instance by a mirror, and one may be named by a manifest list that has the other.
func (i Image) Same(other Image) bool { return i.is(other.Digest) || i.is(other.Instance) }

// is reports whether a digest is one of the image's.
func (i Image) is(digest string) bool {
	return digest != "" && (digest == i.Digest || digest == i.Instance)
}

// Pinned returns the image without what is learned when it is imported.
func (i Image) Pinned() Image { return Image{Name: i.Name, Digest: i.Digest, Instance: i.Instance} }

// Reference returns the image's name, pinned to its digest: HOST/PATH@sha256:….
func (i Image) Reference() imageref.Reference {
	if i.Digest != "" && i.Name.Moves() {
		return i.Name.Pinned(i.Digest)
	}
	return i.Name
}

// Follows returns the name with a tag by which the image was asked for. Its deployment's origin has that tag, so that
// "pivot upgrade", bootc and rpm-ostree see where the tag points to later. It is zero for an image that was asked for by
// its digest, or that is not in a registry: its deployment stays with it.
func (i Image) Follows() imageref.Reference {
	if i.Name.Moves() {
		return i.Name
	}
	return imageref.Reference{}
}

// Container returns the ostree image reference of an ostree-native container for the deployment's origin. It names the
// image as it was asked for, by its tag or by its digest. It is "" for a legacy image.
func (i Image) Container() string {
	if !i.Native {
		return ""
	}
	return i.Name.OstreeReference()
}

// String returns the reference with the version, for display.
func (i Image) String() string {
	if i.Name.IsZero() {
		return "ostree commit " + i.Commit
	}
	if i.Version == "" {
		return i.Reference().String()
	}
	return i.Reference().String() + " (" + i.Version + ")"
}

// imageText is an Image in documents and in the journal.
type imageText struct {
	Reference string `json:"reference"`
	Digest    string `json:"digest"`
	Instance  string `json:"instance,omitempty"`
	Follows   string `json:"follows,omitempty"`
	Commit    string `json:"commit,omitempty"`
	Version   string `json:"version,omitempty"`
	Container string `json:"container,omitempty"`
}

// MarshalJSON implements json.Marshaler.
func (i Image) MarshalJSON() ([]byte, error) {
	return json.Marshal(imageText{i.Reference().String(), i.Digest, i.Instance, i.Follows().String(), i.Commit, i.Version, i.Container()})
}

// UnmarshalJSON implements json.Unmarshaler. The image may be of a system that another program has deployed, so any name
// is one.
func (i *Image) UnmarshalJSON(data []byte) error {
	var t imageText
	err := json.Unmarshal(data, &t)
	name, _ := imageref.Written(cmp.Or(t.Follows, t.Reference))
	*i = Image{name, t.Digest, t.Instance, t.Commit, t.Version, t.Container != ""}
	return err
}
