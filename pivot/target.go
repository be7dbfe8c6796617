// Package pivot is the core: what a machine is (State), what it shall be
// (Target), the difference (Plan), the transaction that makes it so, and the
// journal that survives a power cut.
//
// Data moves one way: Target and State in, Plan out, Transaction. The only
// backward edge is that State is observed anew at the start of each run, so an
// interrupted run is resumed by planning again, never by replaying steps.
package pivot

import (
	"slices"

	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/machineconfig/enable"
	"machine-pivot/kargs"
)

// Target is what a machine shall be after its one reboot.
type Target struct {
	Image Image `json:"image,omitzero"` // zero: keep the booted one
	// Kargs has in its Image what the images bring: nil if that does not count, and
	// nothing as long as it is not known.
	Kargs kargs.Change `json:"kargs"`
	// Entries are below /etc and /var. Owners by name are those of the target's system.
	Entries []hostfiles.Entry `json:"files,omitempty"`
	// Units are enabled or disabled by links, which are worked out for each system anew.
	Units    enable.Units `json:"units,omitzero"`
	Packages Packages     `json:"packages,omitzero"`
}

// Same reports whether both targets ask for the same. What is only learned on
// the way, an image's commit, version and own kernel arguments, does not count.
func (t Target) Same(other Target) bool {
	return t.Image.Digest == other.Image.Digest &&
		t.Kargs.Old.Equal(other.Kargs.Old) && t.Kargs.New.Equal(other.Kargs.New) && t.Kargs.Delete.Equal(other.Kargs.Delete) &&
		(t.Kargs.Image == nil) == (other.Kargs.Image == nil) &&
		slices.Equal(t.Entries, other.Entries) && t.Units.Same(other.Units) && t.Packages.same(other.Packages)
}

// Paths are the paths of the target's entries.
func (t Target) Paths() []string {
	paths := make([]string, len(t.Entries))
	for i, f := range t.Entries {
		paths[i] = f.Path
	}
	return paths
}

// Image is an OS image, pinned to its content.
type Image struct {
	Reference string `json:"reference"`         // as in the registry: NAME@sha256:…
	Digest    string `json:"digest"`            // sha256:…, of the manifest
	Commit    string `json:"commit,omitempty"`  // the ostree commit it carries, once known
	Version   string `json:"version,omitempty"` // as the image calls itself
	// Container is the ostree image reference of an ostree-native container, for
	// the deployment's origin, once known; empty for a legacy image.
	Container string `json:"container,omitempty"`
}

// IsZero reports whether there is no image at all.
func (i Image) IsZero() bool { return i == Image{} }

// Same reports whether two images are the same content: the digest decides, so
// the same image through a mirror is no change.
func (i Image) Same(other Image) bool { return i.Digest != "" && i.Digest == other.Digest }

// Pinned is the image as it is asked for, by its content: without what is learned of it later.
func (i Image) Pinned() Image { return Image{Reference: i.Reference, Digest: i.Digest} }

// String is the reference with the version, for people.
func (i Image) String() string {
	if i.Reference == "" {
		return "ostree commit " + i.Commit
	}
	if i.Version == "" {
		return i.Reference
	}
	return i.Reference + " (" + i.Version + ")"
}
