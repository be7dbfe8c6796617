package ostree

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"machine-pivot/internal/ostree/gvariant"
)

// What ostree-prepare-root and the preparation of a soft reboot record about a root, below the root directory
// (libotcore/otcore.h). A soft reboot keeps /run, so bootedRecord is that of the system before until
// ostree-boot-complete.service replaces it by nextRecord. That is after sysinit.target, and so after the first of
// pivot's own units. The unit stays active, so it does so only after the first soft reboot since the boot.
const (
	bootedRecord = "run/ostree-booted"
	nextRecord   = "run/ostree/nextroot-booted"
)

// backingRoot is the key in a record for the device and inode of the deployment directory. It is needed if "/" is a
// composefs or an overlay.
const backingRoot = "backing-root-device-inode"

// bootedInode returns the device and inode of the booted deployment's directory: those that
// ostree-prepare-root has recorded, or else those of the root directory.
func (s *Sysroot) bootedInode() (inode, error) {
	if next, entered, err := s.softlyEntered(); err != nil || entered {
		return next, err
	}
	booted, err := s.record(bootedRecord)
	if err != nil {
		return inode{}, err
	}
	if t, ok := booted[backingRoot].(gvariant.Tuple); ok {
		return backingInode(bootedRecord, t)
	}
	return statInode(s.root)
}

// softlyEntered reports whether the running system is the one of nextRecord, and returns the device and inode of its
// directory. Where a soft reboot is only prepared, the running system has another /etc than the deployment in the record.
func (s *Sysroot) softlyEntered() (next inode, entered bool, err error) {
	record, err := s.record(nextRecord)
	if errors.Is(err, fs.ErrNotExist) {
		return next, false, nil
	}
	t, ok := record[backingRoot].(gvariant.Tuple)
	if err != nil || !ok {
		return next, false, err
	}
	if next, err = backingInode(nextRecord, t); err != nil {
		return next, false, err
	}
	dir, err := s.dirOf(next)
	if err != nil || dir == "" {
		return next, false, err
	}
	its, err := statInode(filepath.Join(dir, "etc"))
	if err != nil {
		return next, false, err
	}
	running, err := statInode(filepath.Join(s.root, "etc"))
	return next, its == running, err
}

// SoftlyEntered returns the records of the running system and of the one before, if a soft reboot has entered the
// running one and libostree has not noted that; else "". libostree takes the system before for the booted one until the
// first record has been renamed to the second.
func (s *Sysroot) SoftlyEntered() (running, before string, err error) {
	_, entered, err := s.softlyEntered()
	if err != nil || !entered {
		return "", "", err
	}
	return filepath.Join(s.root, nextRecord), filepath.Join(s.root, bootedRecord), nil
}

// BootedComposefs reports whether the root of the running system is a composefs, as
// ostree-prepare-root has recorded it. Only such a system is entered by a soft reboot, or left by one.
func (s *Sysroot) BootedComposefs() (bool, error) {
	booted, err := s.record(bootedRecord)
	composefs, _ := booted["composefs"].(bool)
	return composefs, err
}

// record reads a record; it is empty if its file is, as older versions of libostree leave it.
func (s *Sysroot) record(file string) (map[string]any, error) {
	data, err := os.ReadFile(filepath.Join(s.root, file))
	if err != nil {
		return nil, fmt.Errorf("cannot find the booted deployment: %w", err)
	}
	if len(data) == 0 {
		return nil, nil
	}
	value, err := gvariant.Decode("a{sv}", data)
	if err != nil {
		return nil, fmt.Errorf("cannot read /%s: %w", file, err)
	}
	return dictionary(value), nil
}

func backingInode(file string, t gvariant.Tuple) (inode, error) {
	if len(t) == 2 {
		dev, isDev := t[0].(uint64)
		ino, isIno := t[1].(uint64)
		if isDev && isIno {
			return inode{dev, ino}, nil
		}
	}
	return inode{}, errors.New("cannot read /" + file + ": " + backingRoot + " is not a device and inode")
}
