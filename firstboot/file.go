package firstboot

import (
	"path/filepath"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/machine"
	"machine-pivot/internal/machineconfig"
)

// EncapsulatedPath is where Ignition leaves the encapsulated MachineConfig. The first boot is open as long as this file
// exists, or the one at machineconfig.CommittedPath.
const EncapsulatedPath = machineconfig.EncapsulatedPath

// path returns where the file is. That by default has another name in a deployment that a first boot has committed.
func (b *FirstBoot) path() string {
	if b.File == EncapsulatedPath {
		if open, err := machine.OpenFirstBoot(b.Host.Root); err == nil && open != "" {
			return open
		}
	}
	return b.File
}

// handOn returns what the deployment of a commit gets besides its target: the encapsulated MachineConfig under pivot's own
// name only. A file that others read as a signal changes when their contract says so, and the machine-config operator's
// says that its file is gone before the new system starts. The old system keeps it, so that a boot that falls back to it
// finds the first boot open.
func (b *FirstBoot) handOn(commit string) ([]hostfiles.File, error) {
	if finds, err := b.FindsCommitted(commit); err != nil || !finds {
		return nil, err
	}
	file, there, err := hostfiles.Read(b.Host.Root, b.path())
	if err != nil || !there {
		return nil, err
	}
	file.Path = machineconfig.CommittedPath
	return []hostfiles.File{hostfiles.Absent(EncapsulatedPath), file}, nil
}

// moveAway renames the file, so that no program takes the first boot for open any more.
func (b *FirstBoot) moveAway() error {
	file := b.Host.Path(b.File)
	if b.File == EncapsulatedPath {
		return machine.CloseFirstBoot(b.Host.Disk, filepath.Dir(file))
	}
	if err := hostfiles.Rename(b.Host.Disk, file, file+machineconfig.ClosedSuffix); err != nil {
		return fault.New(fault.CannotWrite, "cannot close the first boot: %w", err)
	}
	return nil
}
