package host

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"machine-pivot/internal/hostfiles"
)

// BootcPath is bootc's program in an image.
const BootcPath = "/usr/bin/bootc"

// bootcDir is the directory of bootc's own state below the root of the physical file system. bootc makes it when
// it installs a host, or changes one for the first time (crates/lib/src/store/mod.rs).
const bootcDir = "ostree/bootc"

// OfBootc reports whether bootc manages the machine: its system has bootc, and bootc has installed or changed it. Its
// owner expects of a change what bootc would do.
func (h *Host) OfBootc() bool {
	program, err := os.Stat(h.Path(BootcPath))
	if err != nil || !program.Mode().IsRegular() {
		return false
	}
	dir, err := os.Stat(filepath.Join(h.Sysroot().Physical(), bootcDir))
	return err == nil && dir.IsDir()
}

// rebootRequired tells programs such as kured that the machine waits for a reboot.
const rebootRequired = "/run/reboot-required"

// TellBootc keeps two files of bootc true after a change of the next boot, as bootc does itself
// (crates/lib/src/deploy.rs). /run/reboot-required exists if the next boot starts another system, image. A
// new time of /ostree/bootc, for which bootc-status-updated.path waits, says that bootc's status may have changed.
func (h *Host) TellBootc(pending bool, image string) error {
	err := h.sayRequired(pending, image)
	return errors.Join(err, h.touchBootc())
}

func (h *Host) sayRequired(pending bool, image string) error {
	file := h.Path(rebootRequired)
	if pending {
		text := fmt.Sprintf("pivot: Reboot required for image: %s\n", image)
		if err := hostfiles.Replace(h.Disk, file, []byte(text), 0o644); err != nil {
			return fmt.Errorf("cannot say in %s that a reboot is required: %w", rebootRequired, err)
		}
		return nil
	}
	content, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	known := bytes.HasPrefix(content, []byte("pivot: ")) || bytes.HasPrefix(content, []byte("bootc: "))
	if err == nil && known { // what others have written is theirs, such as apt's
		err = h.Disk.Remove(file)
	}
	if err != nil {
		return fmt.Errorf("cannot say in %s that no reboot is required: %w", rebootRequired, err)
	}
	return nil
}

func (h *Host) touchBootc() error {
	physical := h.Sysroot().Physical()
	dir, err := hostfiles.OpenWritable(physical, filepath.Join(physical, bootcDir))
	if err != nil {
		return fmt.Errorf("cannot tell bootc of the change: %w", err)
	}
	defer dir.Close()
	now := time.Now()
	if err := os.Chtimes(fmt.Sprintf("/proc/self/fd/%d", dir.Fd()), now, now); err != nil {
		return fmt.Errorf("cannot tell bootc of the change: %w", err)
	}
	return nil
}
