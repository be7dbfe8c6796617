package firstboot

import (
	"context"
	"crypto/x509"
	"time"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/host"
	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/hostimages"
	"machine-pivot/internal/live"
	"machine-pivot/internal/osimage"
	"machine-pivot/internal/retry"
	"machine-pivot/internal/trial"
	"machine-pivot/pivot"
)

// Machine is what a pivot works on and with.
type Machine struct {
	Host     *host.Host
	Puller   *osimage.Puller
	Images   Images // nil: what Puller pulls, in the host's repository
	Engine   pivot.Engine
	Retry    retry.Policy
	Progress *pivot.Progress
	Place    Place // nil: the started system
	// Systemd is told of changes of the running system; nil: the machine's, if that is what runs.
	Systemd live.Services
	// Contributors of entries, beside CPU partitioning and what is projected into /var.
	Contributors []pivot.Contributor
	// RebootMethod goes before the one of the machine's settings, unless it is "".
	RebootMethod host.RebootMethod
	// ImageKargs goes before the one of the machine's settings, unless it is "".
	ImageKargs host.ImageKargs

	// Try is how a new system has to prove itself; nil: it is kept without that.
	Try *trial.Terms

	// FromDownloaded is that images come from what an earlier run has downloaded, and no
	// registry is asked for one.
	FromDownloaded bool
	// Window goes before the one of the machine's settings, unless it is "": package window has its
	// form, or it is host.None.
	Window string
	// FleetLock goes before the one of the machine's settings, unless it is "": a URL, or host.None.
	FleetLock string
	// FleetRoots are the authorities of the fleet's lock; nil: the system's.
	FleetRoots *x509.CertPool

	closes time.Time          // when the window ends that is open; zero: there is none
	pulled *hostimages.Pulled // made when one is asked for
}

// open reads the journal and notes which boot this is.
func (m *Machine) open() error {
	if id, err := m.Host.BootID(); err == nil { // if not, Observe says so
		m.Progress.BootID = id
	}
	return m.Progress.Open()
}

// openToChange is open for a run that may change the machine, which none may while the
// system that runs is on trial.
func (m *Machine) openToChange(ctx context.Context) error {
	if err := m.openTimed(ctx); err != nil {
		return err
	}
	if err := m.conductor().AllowChange(ctx); err != nil {
		return err
	}
	return m.stillOpen()
}

// firstBootIsOver is an error, that VERB OBJECT cannot be done, while the first boot is open.
func (m *Machine) firstBootIsOver(what string) error {
	open, err := m.Host.Has(EncapsulatedPath)
	if open {
		err = fault.New(fault.Refused, "cannot %s: the first boot is not over, %s is there", what, EncapsulatedPath).
			WithHint("complete it first: pivot firstboot")
	}
	return err
}

// moveAway lets no program find the file any more, by which a first boot is open.
func (b *FirstBoot) moveAway() error {
	file := b.Host.Path(b.File)
	if err := hostfiles.Rename(b.Host.Disk, file, file+closedSuffix); err != nil {
		return fault.New(fault.CannotWrite, "cannot close the first boot: %w", err)
	}
	return nil
}

// openTimed is open for a run that may write the journal, which then tells how the boot
// came up, too. A change of the running system that was interrupted is finished first.
func (m *Machine) openTimed(ctx context.Context) error {
	m.Progress.Boot = m.Host.BootTimes(ctx)
	if err := m.open(); err != nil {
		return err
	}
	_, err := m.finishLive(ctx)
	return err
}

// converger is what brings this machine to a target.
func (m *Machine) converger() *pivot.Converger {
	images := m.imagesOrPulled()
	return &pivot.Converger{
		Host: m.Host, Place: m.placeOrDefault(), Contributors: append([]pivot.Contributor{partition{m.Host}, outside{m}}, m.Contributors...), Checks: []pivot.Check{m.checkUnified},
		Images: images, Repositories: m.pulledImages().Extensions(), Content: hostimages.Content{Host: m.Host, Arguments: images.Arguments, Check: m.checkProjectsNext},
		Engine: m.Engine, Retry: m.Retry, Progress: m.Progress,
	}
}

// Verify compares what runs with what was last asked for and names each
// difference. That is the encapsulated MachineConfig's target while the first
// boot is open, and the journal's after it.
func (m *Machine) Verify(ctx context.Context) ([]string, error) {
	if err := m.Progress.Open(); err != nil {
		return nil, err
	}
	return m.differences(ctx)
}

// differences are those of the system that runs from the journal's target.
func (m *Machine) differences(ctx context.Context) ([]string, error) {
	return m.converger().Differences(ctx, m.Progress.Record.Target)
}
