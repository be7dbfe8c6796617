package selinux

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Attribute is the extended attribute that holds a file's label.
const Attribute = "security.selinux"

// LabelOf returns the label of a file, or "" if it has none. It does not follow a symbolic link.
func LabelOf(file string) (string, error) {
	buffer := make([]byte, 4096)
	n, err := unix.Lgetxattr(file, Attribute, buffer)
	switch {
	case errors.Is(err, unix.ENODATA), errors.Is(err, unix.EOPNOTSUPP):
		return "", nil
	case err != nil:
		return "", fmt.Errorf("cannot read the SELinux label of %s: %w", file, err)
	}
	return strings.TrimRight(string(buffer[:n]), "\x00"), nil
}

// SetLabel sets the label of a file, unless the file has that label already. It does not follow
// a symbolic link.
func SetLabel(file, label string) error {
	have, err := LabelOf(file)
	if err != nil || have == label {
		return err
	}
	if err := unix.Lsetxattr(file, Attribute, []byte(label+"\x00"), 0); err != nil {
		return fmt.Errorf("cannot give %s the SELinux label %s: %w", file, label, err)
	}
	return nil
}

// Label sets the label of an open file or directory.
func Label(file *os.File, label string) error {
	if err := unix.Fsetxattr(int(file.Fd()), Attribute, []byte(label+"\x00"), 0); err != nil {
		return fmt.Errorf("cannot give %s the SELinux label %s: %w", file.Name(), label, err)
	}
	return nil
}

// LabelLink sets the label of a symbolic link that was opened with O_PATH. Such a descriptor takes
// no fsetxattr(2), and its name below /proc leads to the link itself.
func LabelLink(link *os.File, label string) error {
	if err := unix.Setxattr(fmt.Sprintf("/proc/self/fd/%d", link.Fd()), Attribute, []byte(label+"\x00"), 0); err != nil {
		return fmt.Errorf("cannot give %s the SELinux label %s: %w", link.Name(), label, err)
	}
	return nil
}

// Inherit sets the label of a file without a label to that of its directory, if it has one.
// This is what most policies do for new files.
func Inherit(file string) error {
	have, err := LabelOf(file)
	if err != nil || have != "" {
		return err
	}
	label, err := LabelOf(filepath.Dir(file))
	if err != nil || label == "" {
		return err
	}
	return SetLabel(file, label)
}

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
func (c *Contexts) Apply(file, name string) error { return c.Each(file, name, SetLabel) }

// Check returns an error if one of the files that Each visits has another label.
func (c *Contexts) Check(file, name string) error { return c.Each(file, name, CheckLabel) }

// CheckLabel returns an error if a file does not have the label.
func CheckLabel(file, label string) error {
	have, err := LabelOf(file)
	if err == nil && have != label {
		err = fmt.Errorf("%s has the SELinux label %q, want %q", file, have, label)
	}
	return err
}
