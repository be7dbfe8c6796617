package day2

import (
	"errors"
	"io/fs"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/hostimages"
	"machine-pivot/internal/machine"
)

// imagesFor returns the images of a download, if it is to be used; else nil, for the machine's.
func imagesFor(m *machine.Machine, options RunOptions) (machine.Images, error) {
	if !options.Downloaded {
		return nil, nil
	}
	d, err := DownloadIn(m.Progress.Content)
	switch {
	case err != nil:
		return nil, err
	case d == nil:
		return nil, fault.New(fault.Refused, "cannot use what was downloaded: nothing was").WithHint(hostimages.DownloadAgain)
	case d.At.IsZero():
		return nil, fault.New(fault.Refused, "cannot use what was downloaded: the download was interrupted").WithHint(hostimages.DownloadAgain)
	}
	return downloadedImages(m, *d), nil
}

// downloadedImages returns the images of a download, for which no registry is asked.
func downloadedImages(m *machine.Machine, d Download) machine.Images {
	return hostimages.Downloaded{Store: m.Pulled().Store, Image: d.Image, Names: d.Names}
}

// downloadedConfig returns the MachineConfig that was downloaded for.
func downloadedConfig(m *machine.Machine) (Config, error) {
	d, err := recordedDownload(m)
	if err != nil {
		return Config{}, err
	}
	if d.MachineConfig == "" {
		return Config{}, fault.New(fault.Refused, "cannot apply what was downloaded: it is image %s, and no MachineConfig", d.Image.Reference()).
			WithHint("pivot rebase --from-downloaded moves to it; pivot apply --download-only MACHINECONFIG downloads for a MachineConfig")
	}
	content, err := m.Progress.Journal.Content(d.MachineConfig)
	if errors.Is(err, fs.ErrNotExist) {
		return Config{}, fault.New(fault.Refused, "cannot apply what was downloaded: the MachineConfig %s is not kept any more: %w", d.File, err).WithHint(hostimages.DownloadAgain)
	}
	return Config{File: d.File, Data: content}, err
}
