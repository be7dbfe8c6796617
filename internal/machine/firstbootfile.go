package machine

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/machineconfig"
	systemdunits "machine-pivot/systemd-units"
)

// OpenFirstBoot returns the path of the encapsulated MachineConfig of the first boot that is open in a system, given by
// its root directory; "" if none is.
func OpenFirstBoot(root string) (string, error) {
	for _, path := range machineconfig.OpenPaths() {
		_, err := os.Lstat(filepath.Join(root, path))
		if err == nil {
			return path, nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return "", fmt.Errorf("cannot tell whether a first boot is open: %w", err)
		}
	}
	return "", nil
}

// CloseFirstBoot closes the first boot that is open in a system, given by its directory etc. The encapsulated
// MachineConfig gets the name of a closed one, whichever it has, so that no program takes the first boot for open any
// more. What Ignition has left is renamed last and stays, as the newest request.
func CloseFirstBoot(disk hostfiles.Disk, etc string) error {
	closed := false
	for _, path := range slices.Backward(machineconfig.OpenPaths()) {
		file := filepath.Join(etc, filepath.Base(path))
		if _, err := os.Lstat(file); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err := hostfiles.Rename(disk, file, filepath.Join(etc, filepath.Base(machineconfig.ClosedPath))); err != nil {
			return fault.New(fault.CannotWrite, "cannot close the first boot: %w", err)
		}
		closed = true
	}
	if !closed {
		return fault.New(fault.CannotWrite, "cannot close the first boot: somebody else has removed %s", machineconfig.EncapsulatedPath).
			WithHint("put the file back: touch %s; the next run closes the first boot", machineconfig.EncapsulatedPath)
	}
	return nil
}

// FindsCommitted reports whether the system of a commit in the repository completes a first boot with pivot's own name
// for the file. An older pivot-firstboot.service, and a masked one, do not. A system without that unit leaves the end
// of the first boot to others, for whom the file's absence is the end.
func (m *Machine) FindsCommitted(commit string) (bool, error) {
	unit, has, err := m.Host.NextUnit(systemdunits.FirstBoot, commit)
	return err == nil && (!has || bytes.Contains(unit, []byte(machineconfig.OpenGlob))), err
}

// ClosedFirstBoot returns the digest of the encapsulated MachineConfig of the first boot that has ended in a system,
// given by its root directory; "" if none has. A closed file, without one that is open, says so also where the journal
// could not be written: it is in /etc, which belongs to one system only.
func ClosedFirstBoot(root string) (hostfiles.Digest, error) {
	open, err := OpenFirstBoot(root)
	closed := hostfiles.File{}
	if err == nil && open == "" {
		closed, _, err = hostfiles.Read(root, machineconfig.ClosedPath)
	}
	if err != nil {
		return "", fmt.Errorf("cannot tell whether a first boot has ended in %s: %w", root, err)
	}
	return closed.Digest, nil
}

// firstBootOpen reports whether a first boot is open in the running system.
func (m *Machine) firstBootOpen() (bool, error) {
	open, err := OpenFirstBoot(m.Host.Root)
	return open != "", err
}
