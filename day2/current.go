package day2

import (
	"errors"
	"fmt"
	"io/fs"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/machine"
	"machine-pivot/internal/machineconfig"
	"machine-pivot/internal/sepolicy"
)

// current returns the machine's current MachineConfig: from its record, or, if none was ever
// applied, from the machine-config-daemon's, or from the first boot. It is empty for a machine
// that never had one. FIPS mode is that of the running kernel. takenOver reports whether the
// MachineConfig is the daemon's. facts are those that the next MachineConfig is checked with: what
// they refuse in both is no change.
func current(m *machine.Machine, facts machineconfig.Host) (desired *machineconfig.MachineConfig, takenOver bool, err error) {
	fips, err := m.Host.FIPS()
	if err != nil {
		return nil, false, err
	}
	path, data, err := readCurrent(m.Host.Root)
	switch {
	case path == machineconfig.DaemonPath:
		desired, takenOver = takeOver(m, facts, data, err), true
	case err != nil:
		return nil, false, fmt.Errorf("cannot read the MachineConfig that this machine has: %w", err)
	default:
		if desired, err = parseCurrent(path, data, facts); err != nil {
			return nil, false, err
		}
	}
	desired.SetFIPS(fips)
	return desired, takenOver, nil
}

// parseCurrent parses a MachineConfig that a machine has; without a path it is empty.
func parseCurrent(path string, data []byte, facts machineconfig.Host) (*machineconfig.MachineConfig, error) {
	if path == "" {
		return &machineconfig.MachineConfig{}, nil
	}
	desired, report := machineconfig.ParseRecord(data, facts)
	if report.Failed() {
		return nil, fault.New(fault.Refused, "cannot use the MachineConfig that this machine has: %w", report.Err(path)).WithHint(currentRemedy)
	}
	return desired, nil
}

const currentRemedy = "move the file away; then nothing of what it asked for is removed"

// readCurrent reads the newest MachineConfig that a system has, and its path; "" if it has none.
func readCurrent(root string) (path string, data []byte, err error) {
	for _, path := range machineconfig.CurrentPaths() {
		data, err := hostfiles.StateFile{Root: root, Path: path, Remedy: currentRemedy}.Read()
		if !errors.Is(err, fs.ErrNotExist) {
			return path, data, err
		}
	}
	return "", nil, nil
}

// saveRecord writes a record into the running /etc, or removes it.
func saveRecord(m *machine.Machine, record hostfiles.File) error {
	labels, err := sepolicy.RunningLabels(m.Host.Root)
	if err == nil {
		err = m.PutInRunningEtc(record, labels)
	}
	if err != nil {
		return fault.New(fault.CannotWrite, "cannot keep the record of the MachineConfig: %w", err)
	}
	return nil
}
