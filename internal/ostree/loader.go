package ostree

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// CheckLoader returns an error if libostree would refuse to work with /boot/loader: it must be a link to loader.0 or
// loader.1, which a commit replaces by one rename. A boot loader follows a directory in its place just as well, so the
// machine boots, and nothing can be committed. A libostree for file systems without links marks such a directory by a
// file with its version. A loader that is missing, or leads nowhere, has no boot entries, which others report. Source:
// read_current_bootversion in libostree's ostree-sysroot.c.
func (s *Sysroot) CheckLoader() error {
	path := filepath.Join(s.bootDir(), "loader")
	info, err := os.Lstat(path)
	if err != nil {
		return fmt.Errorf("cannot look at /boot/loader: %w", err)
	}
	if info.Mode()&fs.ModeSymlink == 0 {
		if _, err := os.Lstat(filepath.Join(path, "ostree_bootversion")); err == nil {
			return nil
		}
		return errors.New("/boot/loader is no link to loader.0 or loader.1, as ostree makes it")
	}
	to, err := os.Readlink(path)
	if err == nil && to != "loader.0" && to != "loader.1" {
		err = fmt.Errorf("/boot/loader is a link to %s; ostree makes it one to loader.0 or loader.1", to)
	}
	return err
}
