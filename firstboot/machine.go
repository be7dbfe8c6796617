package firstboot

import (
	"context"

	"machine-pivot/internal/host"
	"machine-pivot/internal/osimage"
	"machine-pivot/pivot"
)

// Machine is what a pivot works on and with.
type Machine struct {
	Host     *host.Host
	Puller   *osimage.Puller
	Images   Images // nil: what Puller pulls, in the host's repository
	Engine   pivot.Engine
	Retry    pivot.Retry
	Progress *pivot.Progress
	Place    Place // nil: the started system
	// RebootMethod goes before the one of the machine's settings, unless it is "".
	RebootMethod host.RebootMethod
	// ImageKargs goes before the one of the machine's settings, unless it is "".
	ImageKargs host.ImageKargs

	opened *osimage.Opened // the image that was looked up last, if it is still open
}

// open reads the journal and notes which boot this is.
func (m *Machine) open() error {
	if id, err := m.Host.BootID(); err == nil { // if not, Observe says so
		m.Progress.BootID = id
	}
	return m.Progress.Open()
}

// openToChange is open for a run that may change the machine: the journal will tell
// how the boot came up, too.
func (m *Machine) openToChange(ctx context.Context) error {
	m.Progress.Boot = m.Host.BootTimes(ctx)
	return m.open()
}

// converger is what brings this machine to a target.
func (m *Machine) converger() *pivot.Converger {
	return &pivot.Converger{
		Host: m.Host, Place: m.place(), Contributors: []pivot.Contributor{partition{m.Host}}, Checks: []pivot.Check{m.checkUnified},
		Images: m.images(), Content: imageKargs{m}, Engine: m.Engine, Retry: m.Retry, Progress: m.Progress,
	}
}

// Verify compares what runs with what was last asked for and names each
// difference. That is the encapsulated MachineConfig's target while the first
// boot is open, and the journal's after it.
func (m *Machine) Verify() ([]string, error) {
	if err := m.Progress.Open(); err != nil {
		return nil, err
	}
	return m.converger().Differences(m.Progress.Record.Target)
}
