package hostimages

import (
	"cmp"
	"context"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/osimage"
	"machine-pivot/internal/osimage/imageref"
	"machine-pivot/internal/ostree"
	"machine-pivot/pivot"
)

// DownloadAgain is the hint of errors about an image that was not downloaded or cannot be used.
const DownloadAgain = "download it: pivot apply --download-only MACHINECONFIG, or pivot rebase --download-only IMAGE"

// Downloaded provides OS images that were pulled into the host's repository before, by another
// run or earlier in this one. It uses no registry.
type Downloaded struct {
	Store
	Image pivot.Image // the OS image as it was imported; zero if there is none
	// Names has the images, including extensions images, by the references that were requested,
	// which may have tags.
	Names map[imageref.Reference]pivot.Image
}

var _ pivot.Images = Downloaded{}

// Resolve implements pivot.Images. A tag stands for the image that it named at the time of the
// download.
func (d Downloaded) Resolve(_ context.Context, image pivot.Image) (pivot.Image, error) {
	found, known := d.Names[image.Name]
	if !known {
		return image, d.other(image)
	}
	return found, nil
}

// other returns the error for an image that was not downloaded.
func (d Downloaded) other(image pivot.Image) error {
	return fault.New(fault.Refused, "cannot use image %s: it was not downloaded, %s was", image.Reference(), cmp.Or(d.Image.Reference().String(), "no image")).WithHint(DownloadAgain)
}

// Check implements pivot.Images.
func (d Downloaded) Check(ctx context.Context, image pivot.Image) error {
	d.noteLabels()
	if !d.Image.Same(image) {
		return d.other(image)
	}
	repo, err := d.Host.ReadRepo()
	if err != nil {
		return err
	}
	if _, err := d.whole(ctx, repo); err != nil {
		return err
	}
	return d.Host.CheckRepoWritable()
}

// whole returns the commit that was downloaded, after checking that it is complete in the
// repository, with the refs of its layers: other programs prune what no deployment has.
func (d Downloaded) whole(ctx context.Context, repo *ostree.Repo) (ostree.Checksum, error) {
	commit, err := ostree.ParseChecksum(d.Image.Commit)
	if err == nil {
		err = repo.HasWhole(ctx, commit)
	}
	if err == nil {
		_, err = osimage.Kept(ctx, repo, commit, imageref.Reference{})
	}
	if err != nil {
		err = fault.New(fault.Refused, "cannot use image %s: it was downloaded, but is not complete any more: %w", d.Image.Reference(), err).WithHint(DownloadAgain)
	}
	return commit, err
}

// Import implements pivot.Images. It repeats the checks of the download that depend on the machine or the engine,
// because their result may have changed since.
func (d Downloaded) Import(ctx context.Context, image pivot.Image, _ func(pivot.Amount)) (pivot.Image, error) {
	if !d.Image.Same(image) {
		return pivot.Image{}, d.other(image)
	}
	repo, view, err := d.Host.OpenRepo()
	if err != nil {
		return pivot.Image{}, err
	}
	defer view.Close()
	commit, err := d.whole(ctx, repo)
	if err != nil {
		return pivot.Image{}, err
	}
	setup, err := CheckBoots(repo, commit)
	if err == nil {
		err = d.Engine.CheckPrepareRoot(ctx, setup)
	}
	if err == nil {
		err = d.Engine.CheckSpace(ctx, d.Image.Commit)
	}
	if err == nil {
		err = d.stillBound(repo, commit)
	}
	if err != nil {
		return pivot.Image{}, err
	}
	got := d.Image
	got.Name = image.Name // it may be asked for by another name than it was downloaded
	return got, osimage.Keep(ctx, repo, commit, container(got))
}

// CheckBoots returns an error unless the system of a commit in the repository has what its boot needs, as an import for this
// machine checks it. An import that only stores an image warns instead.
func CheckBoots(repo *ostree.Repo, commit ostree.Checksum) (setup ostree.PrepareRoot, err error) {
	setup, err = repo.PrepareRoot(commit)
	if err == nil {
		err = osimage.CheckMountPoints(commit, setup, repo.Objects)
	}
	if err == nil {
		err = osimage.CheckBootFiles(commit, repo.Objects)
	}
	return setup, err
}
