package machine

import (
	"machine-pivot/internal/hostimages"
	"machine-pivot/internal/osimage"
	"machine-pivot/internal/settings"
	"machine-pivot/pivot"
)

// Images gets OS images into the host's repository.
type Images interface {
	pivot.Images
	// Arguments returns the kernel arguments that a deployment's commit in the repository
	// brings.
	Arguments(commit string) (osimage.Arguments, error)
}

// imagesOrPulled returns the source of a transaction's image.
func (m *Machine) imagesOrPulled() Images {
	if m.Images != nil {
		return m.Images
	}
	return m.Pulled()
}

// Pulled returns the images that Puller pulls into the host's repository.
func (m *Machine) Pulled() *hostimages.Pulled {
	if m.pulled == nil {
		chosen, _ := m.Settings() // a command that acts on them has reported what is wrong with them
		m.pulled = &hostimages.Pulled{
			Store: hostimages.Store{
				Host: m.Host, Puller: m.Puller, Engine: m.Engine, Note: m.Progress.Note,
				IgnoreBound: chosen.BoundImages == settings.BoundImagesIgnore, Early: !m.Where().Started(),
			},
			Network: m.Where().Network, Retry: m.Retry, Waiting: m.Progress.Waiting,
		}
	}
	return m.pulled
}
