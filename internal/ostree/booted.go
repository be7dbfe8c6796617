package ostree

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"machine-pivot/internal/ostree/gvariant"
)

// backingRoot is the key in /run/ostree-booted for the device and inode of the deployment
// directory. It is needed if "/" is a composefs or an overlay (libotcore/otcore.h).
const backingRoot = "backing-root-device-inode"

// bootedInode returns the device and inode of the booted deployment's directory: those that
// ostree-prepare-root has recorded, or else those of the root directory.
func (s *Sysroot) bootedInode() (inode, error) {
	data, err := os.ReadFile(filepath.Join(s.root, "run/ostree-booted"))
	if err != nil {
		return inode{}, fmt.Errorf("cannot find the booted deployment: %w", err)
	}
	if len(data) > 0 { // older versions leave it empty
		value, err := gvariant.Decode("a{sv}", data)
		if err != nil {
			return inode{}, fmt.Errorf("cannot read /run/ostree-booted: %w", err)
		}
		if t, ok := dictionary(value)[backingRoot].(gvariant.Tuple); ok {
			return backingInode(t)
		}
	}
	return statInode(s.root)
}

// BootedComposefs reports whether the root of the running system is a composefs, as
// ostree-prepare-root has recorded it (libotcore/otcore.h).
func (s *Sysroot) BootedComposefs() (bool, error) {
	data, err := os.ReadFile(filepath.Join(s.root, "run/ostree-booted"))
	if err != nil {
		return false, fmt.Errorf("cannot find the booted deployment: %w", err)
	}
	if len(data) == 0 { // older versions leave it empty
		return false, nil
	}
	value, err := gvariant.Decode("a{sv}", data)
	if err != nil {
		return false, fmt.Errorf("cannot read /run/ostree-booted: %w", err)
	}
	composefs, _ := dictionary(value)["composefs"].(bool)
	return composefs, nil
}

func backingInode(t gvariant.Tuple) (inode, error) {
	if len(t) == 2 {
		dev, isDev := t[0].(uint64)
		ino, isIno := t[1].(uint64)
		if isDev && isIno {
			return inode{dev, ino}, nil
		}
	}
	return inode{}, errors.New("cannot read /run/ostree-booted: " + backingRoot + " is not a device and inode")
}
