package softreboot

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"machine-pivot/internal/start"
)

// StartOf returns the ID of the start of the system that runs: that of a kernel with a boot ID, after the Count of soft
// reboots. mark is the path of the host's start.EnteredMark for this process.
func StartOf(boot string, count uint32, mark string) (start.ID, error) {
	id := start.Of(boot, count)
	switch _, err := os.Lstat(mark); {
	case err == nil:
		return id.IfEntered(), nil
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ENOTDIR): // somebody has made a file in the place of its directory
		return id, nil
	default:
		return "", fmt.Errorf("cannot tell whether the system was entered without a reboot: %w", err)
	}
}
