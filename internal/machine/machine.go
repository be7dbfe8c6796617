// Package machine has what a first boot and day 2 share: the host, its parts for their commands, its settings and
// status, and how to request, verify and reboot. The commands themselves are in packages firstboot and day2.
package machine

import (
	"context"
	"crypto/x509"
	"fmt"
	"strings"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/host"
	"machine-pivot/internal/hostimages"
	"machine-pivot/internal/osimage"
	"machine-pivot/internal/retry"
	"machine-pivot/internal/settings"
	"machine-pivot/internal/verdict"
	"machine-pivot/pivot"
)

// Machine is a host, with the parts that a command uses on it. A command does not change it.
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
	// Self is this program, which asks new systems (rehearse.Inside) and installs their boot loaders (bootloader.Inside); "": neither.
	Self string
	// Contributors are those besides the link /boot/loader, CPU partitioning, FIPS mode, what is projected into /var, and bound application images.
	Contributors []pivot.Contributor
	// Features are those of the program, and Given the values of their flags.
	Features []Feature
	Given    Given

	// The next six override the machine's settings unless they are "".
	RebootMethod settings.RebootMethod
	ImageKargs   settings.ImageKargs
	BoundImages  settings.BoundImages
	BootLoader   settings.BootLoader
	Window       string // in the format of package window, or settings.None
	FleetLock    string // a URL, or settings.None

	// Accept are verdicts that do not refuse an image, besides those of the settings.
	Accept []verdict.Name
	// FleetRoots are the CAs trusted for the fleet's lock; nil: the system's.
	FleetRoots *x509.CertPool
	// Result is filled in by a command; Conclude completes it. nil: the command makes one.
	Result *Result
	// Rebooting is called when a reboot was accepted, before the command waits for its end; nil:
	// nobody asks.
	Rebooting func()

	pulled *hostimages.Pulled // created on first use
	joined pivot.Features     // the same
}

// Open loads the journal and sets the ID of this start.
func (m *Machine) Open() error {
	if id, err := m.Host.Start(); err == nil { // otherwise Observe returns the error
		m.Progress.BootID = id
	}
	return m.Progress.Open()
}

// OpenToWrite is Open for a command that may write the journal. It also collects the times of
// this boot for the journal, and features finish what was interrupted.
func (m *Machine) OpenToWrite(ctx context.Context) error {
	m.Progress.Boot = m.Host.BootTimes(ctx)
	if err := m.Open(); err != nil {
		return err
	}
	return m.Joined().Before(ctx, pivot.StepBegin, nil)
}

// OpenToChange is OpenToWrite for a command that may change the machine. Features end what an earlier change has left, or
// refuse another one.
func (m *Machine) OpenToChange(ctx context.Context) error {
	if err := m.OpenToWrite(ctx); err != nil {
		return err
	}
	return m.Joined().Before(ctx, pivot.StepObserve, nil)
}

// RequireClosedFirstBoot returns an error if the first boot is still open. what is the action
// that is refused, as VERB OBJECT.
func (m *Machine) RequireClosedFirstBoot(what string) error {
	open, err := OpenFirstBoot(m.Host.Root)
	if open != "" {
		err = fault.New(fault.Refused, "cannot %s: the first boot is not over, %s is there", what, open).
			WithHint("complete it first: pivot firstboot")
	}
	return err
}

// Converger returns the Converger for this machine, which takes OS images from a source; nil:
// from the machine's.
func (m *Machine) Converger(images Images) *pivot.Converger {
	if images == nil {
		images = m.imagesOrPulled()
	}
	return &pivot.Converger{
		Host: m.Host, Place: m.Where(), Checks: []pivot.Check{m.checkUnified},
		Contributors: append([]pivot.Contributor{loader{m.Host}, partition{m.Host}, fipsMode{m.Host}, outside{m}, boundImages{m}}, m.Contributors...),
		Features:     m.Joined(),
		Images:       images, Repositories: m.Pulled().Extensions(),
		Content: hostimages.Content{Host: m.Host, Arguments: images.Arguments, Check: m.checkProjectsNext},
		Engine:  m.Engine, Retry: m.Retry, Progress: m.Progress,
	}
}

// Compare compares the running system with what was last asked for, and returns each difference.
// The journal must be open.
func (m *Machine) Compare(ctx context.Context) (pivot.State, []pivot.Difference, error) {
	return m.Converger(nil).Compare(ctx, m.Progress.Content.Target)
}

// Verify opens the journal and compares.
func (m *Machine) Verify(ctx context.Context) ([]pivot.Difference, error) {
	if err := m.Progress.Open(); err != nil {
		return nil, err
	}
	_, differences, err := m.Compare(ctx)
	return differences, err
}

// Failures returns the differences from what was last asked for that count against a system on
// trial, and hold a fleet's slot. The journal must be open.
func (m *Machine) Failures(ctx context.Context) ([]string, error) {
	return m.Converger(nil).Failures(ctx, m.Progress.Content.Target)
}

// WarnAboutNextBoot warns, at the end of a run that finds the running system to be a plan's target, if the next boot
// starts another system that is not.
func (m *Machine) WarnAboutNextBoot(plan pivot.Plan) {
	state := plan.From()
	if !state.Pending() {
		return
	}
	if differences := pivot.Prove(state.AsIfRebooted(), plan.To()); len(differences) > 0 {
		m.Progress.Note(fmt.Sprintf("warning: the next boot starts deployment %s, which is not what was asked for (%s); pivot rollback takes it back",
			state.Default.ID(), strings.Join(differences, "; ")))
	}
}

// Services returns the services of the running system; nil if the machine is not the running
// system.
func (m *Machine) Services() host.Services {
	if m.Systemd == nil && m.Host.Runs() {
		return m.Host.Services()
	}
	return m.Systemd
}
