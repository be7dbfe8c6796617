package firstboot

import (
	"context"
	"errors"
	"io/fs"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/osimage"
	"machine-pivot/internal/osimage/imageref"
	"machine-pivot/internal/ostree"
	"machine-pivot/pivot"
)

// takeDownloaded makes what was downloaded what a run is about, if it asks for that: a run
// without a MachineConfig applies the one that was downloaded.
func (a *Apply) takeDownloaded() error {
	if err := a.Machine.takeDownloaded(); err != nil || !a.FromDownloaded || a.Data != nil {
		return err
	}
	d := a.Progress.Record.Downloaded
	if d.MachineConfig == "" {
		return fault.New(fault.Refused, "cannot apply what was downloaded: it is image %s, and no MachineConfig", d.Image.Reference).
			WithHint("pivot rebase --from-downloaded moves to it; pivot apply --download-only MACHINECONFIG downloads for a MachineConfig")
	}
	content, err := a.Progress.Journal.Content(d.MachineConfig)
	if errors.Is(err, fs.ErrNotExist) {
		return fault.New(fault.Refused, "cannot apply what was downloaded: the MachineConfig %s is not kept any more: %w", d.File, err).WithHint(downloadAgain)
	}
	a.File, a.Data = d.File, content
	return err
}

// takeDownloaded is Apply.takeDownloaded for the images alone.
func (m *Machine) takeDownloaded() error {
	if !m.FromDownloaded {
		return nil
	}
	d := m.Progress.Record.Downloaded
	switch {
	case d == nil:
		return fault.New(fault.Refused, "cannot use what was downloaded: nothing was").WithHint(downloadAgain)
	case d.At.IsZero():
		return fault.New(fault.Refused, "cannot use what was downloaded: the download was interrupted").WithHint(downloadAgain)
	}
	m.Images = downloadedImages{&pulledImages{Machine: m}, *d}
	return nil
}

const downloadAgain = "download it: pivot apply --download-only MACHINECONFIG, or pivot rebase --download-only IMAGE"

// downloadedImages are what an earlier run has downloaded. No registry is asked.
type downloadedImages struct {
	*pulledImages
	download pivot.Download
}

var _ Images = downloadedImages{}

// Resolve implements pivot.Images: a tag names what it named when that was downloaded.
func (i downloadedImages) Resolve(_ context.Context, image pivot.Image) (pivot.Image, error) {
	found, known := i.download.Names[image.Reference]
	if !known {
		return image, i.other(image)
	}
	return found, nil
}

// other is an error about an image that was not downloaded.
func (i downloadedImages) other(image pivot.Image) error {
	was := "no image"
	if !i.download.Image.IsZero() {
		was = i.download.Image.Reference
	}
	return fault.New(fault.Refused, "cannot use image %s: it was not downloaded, %s was", image.Reference, was).WithHint(downloadAgain)
}

// Check implements pivot.Images.
func (i downloadedImages) Check(ctx context.Context, image pivot.Image) error {
	i.noteLabels()
	if !i.download.Image.Same(image) {
		return i.other(image)
	}
	repo, err := i.Host.ReadRepo()
	if err != nil {
		return err
	}
	if _, err := i.whole(ctx, repo); err != nil {
		return err
	}
	return i.Host.CheckRepoWritable()
}

// whole is the commit that was downloaded, all of which is in the repository.
func (i downloadedImages) whole(ctx context.Context, repo *ostree.Repo) (ostree.Checksum, error) {
	commit, err := ostree.ParseChecksum(i.download.Image.Commit)
	if err == nil {
		err = repo.HasWhole(ctx, commit)
	}
	if err != nil {
		err = fault.New(fault.Refused, "cannot use image %s: it was downloaded, but is not whole any more: %w", i.download.Image.Reference, err).WithHint(downloadAgain)
	}
	return commit, err
}

// Import implements pivot.Images. What was checked when the image was downloaded is checked
// again as far as the machine, or the engine, may have changed since.
func (i downloadedImages) Import(ctx context.Context, image pivot.Image, _ func(pivot.Amount)) (pivot.Image, error) {
	if !i.download.Image.Same(image) {
		return pivot.Image{}, i.other(image)
	}
	repo, view, err := i.Host.OpenRepo()
	if err != nil {
		return pivot.Image{}, err
	}
	defer view.Close()
	commit, err := i.whole(ctx, repo)
	if err != nil {
		return pivot.Image{}, err
	}
	setup, err := ostree.ReadPrepareRoot(func(path string) ([]byte, error) { return repo.ReadFile(commit, path) })
	if err == nil {
		err = i.Engine.Accept(ctx, setup)
	}
	if err == nil {
		err = i.spaceInBoot(repo, i.download.Image.Commit)
	}
	if err != nil {
		return pivot.Image{}, err
	}
	var ref imageref.Reference // rpm-ostree removes the refs of images that no deployment has
	if i.download.Image.Container != "" {
		if ref, err = imageref.Parse(i.download.Image.Reference); err != nil {
			return pivot.Image{}, err
		}
	}
	return i.download.Image, osimage.Keep(repo, commit, ref)
}
