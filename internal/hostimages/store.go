// Package hostimages manages a host's images. It gets OS images into the host's ostree repository (Pulled; Downloaded
// without a registry), extracts package repositories from extensions images (Extensions), and reads what an OS image
// brings (Content). These types implement pivot.Images, pivot.Repositories and pivot.Content.
//
// Package osimage reads and imports images, without knowledge of hosts. The callers decide which
// image a host must have, and keep the journal.
package hostimages

import (
	"machine-pivot/internal/host"
	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/osimage"
	"machine-pivot/internal/ostree"
	"machine-pivot/pivot"
)

// Store is a host's ostree repository, which stores its OS images.
type Store struct {
	Host   *host.Host
	Puller *osimage.Puller      // reads images with the host's configuration
	Engine pivot.Engine         // checks whether its deployment of an image would boot
	Note   func(message string) // takes notes for people
	// IgnoreBound continues without the application images that an OS image binds.
	IgnoreBound bool
	// Early says that the system has not started yet, so that its bootc cannot pull images.
	Early bool
}

// Arguments returns the kernel arguments that a commit in the repository brings.
func (s Store) Arguments(commit string) (osimage.Arguments, error) {
	c, err := ostree.ParseChecksum(commit)
	if err != nil {
		return osimage.Arguments{}, err
	}
	repo, err := s.Host.ReadRepo()
	if err != nil {
		return osimage.Arguments{}, err
	}
	return s.Puller.Arguments(repo, c)
}

// noteLabels adds a note if SELinux does not let this program store labels that the running
// policy does not know. Whether the image has such labels is known only during the import,
// which then fails and names the label.
func (s Store) noteLabels() {
	kernel := hostfiles.RunningPolicyIn(s.Host.Root)
	if !kernel.Loaded() {
		return
	}
	if may, err := kernel.StoresUnknown(); err == nil && !may {
		s.Note("SELinux does not let this program store labels that the running policy does not know: an image with new types in its policy will be refused")
	}
}
