package sepolicy

import (
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"machine-pivot/internal/hostfiles"
)

// Each calls f for a file, and for all files below it on the same file system, with the label
// that the policy has for each. name is the path of file in the new system. Each skips files
// for which the policy has no label, and regular files with several hard links, because
// another name may have a different label.
func (c *Contexts) Each(file, name string, f func(file, label string) error) error {
	var device uint64
	return filepath.WalkDir(file, func(found string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		var st unix.Stat_t
		if err := unix.Lstat(found, &st); err != nil {
			return fmt.Errorf("cannot look at %s: %w", found, err)
		}
		switch {
		case found == file:
			device = st.Dev
		case st.Dev != device && d.IsDir():
			return fs.SkipDir
		case st.Dev != device, d.Type().IsRegular() && st.Nlink > 1:
			return nil
		}
		label, known, err := c.Label(path.Join(name, strings.TrimPrefix(found, file)), d.Type())
		if err != nil || !known {
			return err
		}
		return f(found, label)
	})
}

// Apply sets the policy's labels on the files that Each visits.
func (c *Contexts) Apply(file, name string) error { return c.Each(file, name, hostfiles.SetLabel) }

// Check returns an error if one of the files that Each visits has another label.
func (c *Contexts) Check(file, name string) error { return c.Each(file, name, hostfiles.CheckLabel) }
