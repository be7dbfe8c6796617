package firstboot

import (
	"errors"
	"io/fs"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/hostimages"
	"machine-pivot/pivot"
)

// takeDownloaded makes the run use what was downloaded, if FromDownloaded is set. A run
// without a MachineConfig then applies the downloaded one.
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
		return fault.New(fault.Refused, "cannot apply what was downloaded: the MachineConfig %s is not kept any more: %w", d.File, err).WithHint(hostimages.DownloadAgain)
	}
	a.File, a.Data = d.File, content
	return err
}

// takeDownloaded is Apply.takeDownloaded for the images only.
func (m *Machine) takeDownloaded() error {
	if !m.FromDownloaded {
		return nil
	}
	d := m.Progress.Record.Downloaded
	switch {
	case d == nil:
		return fault.New(fault.Refused, "cannot use what was downloaded: nothing was").WithHint(hostimages.DownloadAgain)
	case d.At.IsZero():
		return fault.New(fault.Refused, "cannot use what was downloaded: the download was interrupted").WithHint(hostimages.DownloadAgain)
	}
	m.useDownloaded(*d)
	return nil
}

// useDownloaded takes images from a download, so that no registry is asked for one.
func (m *Machine) useDownloaded(d pivot.Download) {
	m.Images = hostimages.Downloaded{Store: m.pulledImages().Store, Image: d.Image, Names: d.Names}
}
