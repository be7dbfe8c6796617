package machine

import (
	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/hostimages"
	"machine-pivot/internal/osimage"
	"machine-pivot/internal/settings"
	"machine-pivot/pivot"
)

// boundImages is the Contributor for the application images that the running system's image binds:
// it finds those that are not there. Before a commit, package hostimages pulls those of the new image.
type boundImages struct{ *Machine }

var _ pivot.Contributor = boundImages{}

// Entries implements pivot.Contributor.
func (boundImages) Entries() ([]hostfiles.File, error) { return nil, nil }

// Check implements pivot.Contributor.
func (boundImages) Check(pivot.Plan, []hostfiles.File) ([]string, error) { return nil, nil }

// Drift implements pivot.Contributor.
func (b boundImages) Drift(state pivot.State, _ pivot.Target) ([]pivot.Difference, error) {
	chosen, err := b.Settings()
	if err != nil || chosen.BoundImages == settings.BoundImagesIgnore {
		return nil, err
	}
	if binds, err := b.Host.Has("/" + osimage.BoundDir); err != nil || !binds {
		return nil, err
	}
	images, err := hostimages.BoundBy(b.Host, state.Booted.Commit)
	if err != nil {
		return nil, err
	}
	missing, err := hostimages.MissingBound(b.Host.Sysroot().Physical(), images.References)
	var all []pivot.Difference
	for _, ref := range missing {
		all = append(all, pivot.Difference{
			Class: pivot.ClassBoundImage, Name: ref.String(), Wrong: pivot.WrongMissing,
			Message: "application image " + ref.String() + ", which the OS image binds, is not in bootc's storage; to pull it: bootc image cmd pull " + ref.String(),
		})
	}
	return all, err
}
