package hostimages

import (
	"context"
	"errors"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/osimage"
	"machine-pivot/internal/osimage/imageref"
	"machine-pivot/internal/ostree"
	"machine-pivot/pivot"
)

// Secure implements pivot.Images.
func (s Store) Secure(ctx context.Context, image pivot.Image) error {
	err := s.keepRefs(ctx, image)
	if _, lost := errors.AsType[osimage.LostError](err); lost {
		return fault.New(fault.Unavailable, "cannot use image %s: %w", image.Reference(), err).
			WithHint("try again, without --from-downloaded: what is missing is pulled again; keep other programs (bootc, rpm-ostree) from cleaning up meanwhile")
	}
	return err
}

func (s Store) keepRefs(ctx context.Context, image pivot.Image) error {
	commit, err := ostree.ParseChecksum(image.Commit)
	if err != nil {
		return err
	}
	reading, err := s.Host.ReadRepo()
	if err != nil {
		return err
	}
	if err := s.stillBound(reading, commit); err != nil {
		return err
	}
	ref := container(image)
	if kept, err := osimage.Kept(ctx, reading, commit, ref); kept || err != nil {
		return err
	}
	repo, view, err := s.Host.OpenRepo()
	if err != nil {
		return err
	}
	defer view.Close()
	return osimage.Keep(ctx, repo, commit, ref)
}

// Name sets the ref by which other programs find a commit in the repository as image, and returns the ostree image
// reference for the origin of its deployment.
func (s Store) Name(image pivot.Image, commit string) (reference string, err error) {
	of, err := ostree.ParseChecksum(commit)
	if err != nil {
		return "", err
	}
	repo, view, err := s.Host.OpenRepo()
	if err != nil {
		return "", err
	}
	defer view.Close()
	image.Native = true // a legacy image's origin has no such name
	return image.Container(), osimage.Name(repo, of, container(image))
}

// container returns the reference by which other programs find an ostree-native image; zero for an
// image of another kind.
func container(image pivot.Image) imageref.Reference {
	if !image.Native {
		return imageref.Reference{}
	}
	return image.Name
}
