// Package hostimages has the images of a host: it gets OS images into the host's ostree
// repository (Pulled, and Downloaded, which asks no registry), gets repositories of packages
// out of images of extensions (Extensions), and tells what an OS image in the repository
// brings (Content). These implement pivot.Images, pivot.Repositories and pivot.Content.
//
// How an image is read and imported is package osimage's, which knows no host. Which image a
// host shall have, and what its journal says of that, is for the callers.
package hostimages

import (
	"errors"
	"slices"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/host"
	"machine-pivot/internal/osimage"
	"machine-pivot/internal/osimage/kargsd"
	"machine-pivot/internal/ostree"
	"machine-pivot/internal/selinux"
	"machine-pivot/pivot"
)

// Store is a host's ostree repository, as the place of its OS images.
type Store struct {
	Host   *host.Host
	Puller *osimage.Puller      // reads images with the host's configuration
	Engine pivot.Engine         // asked whether what it makes of an image would boot
	Note   func(message string) // told what is worth knowing
}

// Arguments are the kernel arguments that a deployment's commit in the repository brings of
// its own.
func (s Store) Arguments(commit string) (kargsd.Arguments, error) {
	c, err := ostree.ParseChecksum(commit)
	if err != nil {
		return kargsd.Arguments{}, err
	}
	repo, err := s.Host.ReadRepo()
	if err != nil {
		return kargsd.Arguments{}, err
	}
	return s.Puller.Arguments(repo, c)
}

// Release implements pivot.Images: it deletes the ref that kept an imported commit.
// Without that the repository would keep each system that ever was.
func (s Store) Release(image pivot.Image) error {
	repo, view, err := s.Host.OpenRepo()
	if err != nil {
		return err
	}
	return errors.Join(repo.DeleteRef(osimage.KeepAliveRef(image.Commit)), view.Close())
}

// noteLabels says so where an image with a newer SELinux policy than the running one
// could not be stored. Whether this image has one is only known from its content,
// and then refused by name.
func (s Store) noteLabels() {
	kernel := selinux.Running(s.Host.Root)
	if !kernel.Loaded() {
		return
	}
	if may, err := kernel.StoresUnknown(); err == nil && !may {
		s.Note("SELinux does not let this program store labels that the running policy does not know: an image whose policy has new types will be refused")
	}
}

// spaceInBoot checks, before a deployment is made of commit, that its kernel and
// initramfs fit into /boot. Those of a deployment are there already.
func (s Store) spaceInBoot(repo *ostree.Repo, commit string) error {
	c, err := ostree.ParseChecksum(commit)
	if err != nil {
		return err
	}
	files, err := repo.BootFiles(c)
	if err != nil {
		return err
	}
	deployed, err := s.Host.Sysroot().Deployments()
	if err != nil {
		return err
	}
	var need int64
	for _, f := range files {
		need += f.Size
	}
	for _, d := range deployed {
		if have, err := repo.BootFiles(d.Checksum); err == nil && slices.Equal(have, files) {
			return nil
		}
	}
	free, err := s.Host.Free(s.Host.Path("/boot"))
	if err != nil || free >= need {
		return err
	}
	return fault.New(fault.CannotWrite, "cannot deploy commit %s: its kernel and initramfs have %d bytes, /boot has %d bytes free", commit, need, free).
		WithHint("remove a deployment that is no longer wanted (ostree admin undeploy, or rpm-ostree cleanup), and files of others in /boot")
}
