package day2

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/machine"
	"machine-pivot/internal/osimage/imageref"
	"machine-pivot/pivot"
)

// Download is what was pulled for a later run. The journal has only the digest of the
// MachineConfig; its content is kept where only root can read it (Journal.Store).
type Download struct {
	Image pivot.Image `json:"image,omitzero"` // zero if the booted image stays
	// Names maps the requested names, possibly tags, to the downloaded images. A later run uses
	// these whatever the tags point to by then.
	Names map[imageref.Reference]pivot.Image `json:"names,omitempty"`
	// MachineConfig is the digest of the MachineConfig that requested the download, and File its
	// path; "" if it was requested by arguments.
	MachineConfig hostfiles.Digest `json:"machineConfig,omitempty"`
	File          string           `json:"file,omitempty"`
	// At is when the download was complete; zero if there is none, and only Left counts.
	At time.Time `json:"at,omitzero"`
	// Left are images with refs that are still to be removed: of earlier downloads, or of a pull
	// that did not complete.
	Left []pivot.Image `json:"left,omitempty"`
}

// Others returns all images of a download except than.
func (d Download) Others(than pivot.Image) []pivot.Image {
	return slices.DeleteFunc(append(slices.Clone(d.Left), d.Image), func(i pivot.Image) bool { return i.IsZero() || i.Same(than) })
}

// Same reports whether two downloads have the same request and the same images.
func (d Download) Same(other Download) bool {
	if d.MachineConfig != other.MachineConfig || d.Image.Digest != other.Image.Digest || len(d.Names) != len(other.Names) {
		return false
	}
	for name, image := range d.Names {
		if other.Names[name].Digest != image.Digest {
			return false
		}
	}
	return true
}

// partDownloaded is the name of the journal's part with the download.
const partDownloaded = "downloaded"

// DownloadIn returns the download in a journal; nil if there is none.
func DownloadIn(r pivot.JournalContent) (*Download, error) {
	return pivot.PartOf[Download](r, partDownloaded)
}

// KeepIn sets the download in a journal.
func (d Download) KeepIn(r *pivot.JournalContent) error {
	part := pivot.Part{Images: d.Others(pivot.Image{})}
	if d.MachineConfig != "" {
		part.Keeps = []hostfiles.Digest{d.MachineConfig}
	}
	return r.SetPart(partDownloaded, d, part)
}

// Downloads is the feature that shows what was downloaded. The commands of this package download and use it.
func Downloads() machine.Feature {
	return machine.Feature{Of: func(*machine.Machine) pivot.Feature { return downloads{} }}
}

type downloads struct{ pivot.NoFeature }

// Name implements pivot.Feature.
func (downloads) Name() string { return partDownloaded }

// Status implements pivot.Feature.
func (downloads) Status(r pivot.JournalContent) (s pivot.Status) {
	line := func(format string, args ...any) {
		s.Lines = append(s.Lines, pivot.Line{Name: "download", Text: fmt.Sprintf(format, args...)})
	}
	d, err := DownloadIn(r)
	switch {
	case err != nil:
		line("%s", fault.WithRemedy(err))
		return s
	case d == nil:
		return s
	}
	what := []string{}
	if !d.Image.IsZero() {
		what = append(what, d.Image.String())
	}
	if d.MachineConfig != "" {
		what = append(what, "MachineConfig "+d.File)
	}
	if !d.At.IsZero() {
		line("%s, at %s, for --from-downloaded", strings.Join(what, ", "), d.At.Format(time.RFC3339))
	}
	for _, image := range d.Left {
		line("%s, not complete or not used yet; the next download completes or removes it", image)
	}
	return s
}
