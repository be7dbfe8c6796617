package firstboot

import (
	"context"
	"crypto/x509"
	"time"

	"machine-pivot/day2/live"
	"machine-pivot/day2/trial"
	"machine-pivot/internal/fault"
	"machine-pivot/internal/host"
	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/hostimages"
	"machine-pivot/internal/osimage"
	"machine-pivot/internal/retry"
	"machine-pivot/pivot"
)

// Machine is the host that a pivot changes, with the parts that it uses.
type Machine struct {
	Host     *host.Host
	Puller   *osimage.Puller
	Images   Images // nil: Puller pulls them into the host's repository
	Engine   pivot.Engine
	Retry    retry.Policy
	Progress *pivot.Progress
	Place    Place // nil: the started system
	// Systemd applies changes of the running system to its services; nil: the host's systemd,
	// if the host is the running system.
	Systemd host.Services
	// Contributors are those besides CPU partitioning and what is projected into /var.
	Contributors []pivot.Contributor
	// RebootMethod overrides the machine's setting unless it is "".
	RebootMethod host.RebootMethod
	// ImageKargs overrides the machine's setting unless it is "".
	ImageKargs host.ImageKargs

	// Try has the terms of a new system's trial; nil: it is kept without a trial.
	Try *trial.Terms

	// FromDownloaded takes images from an earlier run's download. No registry is asked
	// for one.
	FromDownloaded bool
	// Window overrides the machine's setting unless it is "". It is in the format of package
	// window, or host.None.
	Window string
	// FleetLock overrides the machine's setting unless it is "". It is a URL, or host.None.
	FleetLock string
	// FleetRoots are the CAs trusted for the fleet's lock; nil: the system's.
	FleetRoots *x509.CertPool

	// Result is filled in by a run; Conclude completes it. nil: the run makes one.
	Result *Result
	// Rebooting is called when a reboot was accepted, before the run waits for its end; nil: nobody
	// asks.
	Rebooting func()

	windowEnd time.Time          // of the open window; zero: there is no window
	pulled    *hostimages.Pulled // created on first use
}

// open loads the journal and sets the ID of this boot.
func (m *Machine) open() error {
	if id, err := m.Host.BootID(); err == nil { // otherwise Observe returns the error
		m.Progress.BootID = id
	}
	return m.Progress.Open()
}

// openToChange is open for a run that may change the machine. It returns an error if the
// running system is on trial, or if the window that the run waited for has closed.
func (m *Machine) openToChange(ctx context.Context) error {
	if err := m.openToWrite(ctx); err != nil {
		return err
	}
	if err := m.conductor().AllowChange(ctx); err != nil {
		return err
	}
	return m.checkWindow()
}

// requireClosedFirstBoot returns an error if the first boot is still open. what is the
// action that is refused, as VERB OBJECT.
func (m *Machine) requireClosedFirstBoot(what string) error {
	open, err := m.Host.Has(EncapsulatedPath)
	if open {
		err = fault.New(fault.Refused, "cannot %s: the first boot is not over, %s is there", what, EncapsulatedPath).
			WithHint("complete it first: pivot firstboot")
	}
	return err
}

// moveAway renames the file, so that no program takes the first boot for open any more.
func (b *FirstBoot) moveAway() error {
	file := b.Host.Path(b.File)
	if err := hostfiles.Rename(b.Host.Disk, file, file+closedSuffix); err != nil {
		return fault.New(fault.CannotWrite, "cannot close the first boot: %w", err)
	}
	return nil
}

// openToWrite is open for a run that may write the journal. It also collects the times of
// this boot for the journal, and finishes an interrupted change of the running system.
func (m *Machine) openToWrite(ctx context.Context) error {
	m.Progress.Boot = m.Host.BootTimes(ctx)
	if err := m.open(); err != nil {
		return err
	}
	_, err := m.finishLive(ctx)
	return err
}

// converger returns the Converger for this machine.
func (m *Machine) converger() *pivot.Converger {
	images := m.imagesOrPulled()
	return &pivot.Converger{
		Host: m.Host, Place: m.placeOrDefault(), Contributors: append([]pivot.Contributor{partition{m.Host}, outside{m}}, m.Contributors...), Checks: []pivot.Check{m.checkUnified},
		Images: images, Repositories: m.pulledImages().Extensions(), Content: hostimages.Content{Host: m.Host, Arguments: images.Arguments, Check: m.checkProjectsNext},
		Engine: m.Engine, Retry: m.Retry, Progress: m.Progress, Pulling: m.beginPull,
	}
}

// Verify compares the running system with the journal's target, which is what was last
// asked for, and names each difference.
func (m *Machine) Verify(ctx context.Context) ([]string, error) {
	if err := m.Progress.Open(); err != nil {
		return nil, err
	}
	return m.differences(ctx)
}

// Compare is Verify with the class of each difference.
func (m *Machine) Compare(ctx context.Context) ([]pivot.Difference, error) {
	if err := m.Progress.Open(); err != nil {
		return nil, err
	}
	_, differences, err := m.converger().Compare(ctx, m.Progress.Record.Target)
	return differences, err
}

// failures returns the differences from what was last asked for that count against a system on
// trial, and hold a fleet's slot.
func (m *Machine) failures(ctx context.Context) ([]string, error) {
	return m.converger().Failures(ctx, m.Progress.Record.Target)
}

// differences is Verify for a journal that is open.
func (m *Machine) differences(ctx context.Context) ([]string, error) {
	return m.converger().Differences(ctx, m.Progress.Record.Target)
}
