package hostfiles

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// LabelAttribute is the extended attribute that holds a file's label.
const LabelAttribute = "security.selinux"

// LabelOf returns the label of a file, or "" if it has none. It does not follow a symbolic link.
func LabelOf(file string) (string, error) {
	buffer := make([]byte, 4096)
	n, err := unix.Lgetxattr(file, LabelAttribute, buffer)
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
	if err := unix.Lsetxattr(file, LabelAttribute, []byte(label+"\x00"), 0); err != nil {
		return fmt.Errorf("cannot give %s the SELinux label %s: %w", file, label, err)
	}
	return nil
}

// LabelFile sets the label of an open file or directory.
func LabelFile(file *os.File, label string) error {
	if err := unix.Fsetxattr(int(file.Fd()), LabelAttribute, []byte(label+"\x00"), 0); err != nil {
		return fmt.Errorf("cannot give %s the SELinux label %s: %w", file.Name(), label, err)
	}
	return nil
}

// LabelLink sets the label of a symbolic link that was opened with O_PATH. Such a descriptor takes
// no fsetxattr(2), and its name below /proc leads to the link itself.
func LabelLink(link *os.File, label string) error {
	if err := unix.Setxattr(fmt.Sprintf("/proc/self/fd/%d", link.Fd()), LabelAttribute, []byte(label+"\x00"), 0); err != nil {
		return fmt.Errorf("cannot give %s the SELinux label %s: %w", link.Name(), label, err)
	}
	return nil
}

// InheritLabel sets the label of a file without a label to that of its directory, if it has one.
// This is what most policies do for new files.
func InheritLabel(file string) error {
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

// CheckLabel returns an error if a file does not have the label.
func CheckLabel(file, label string) error {
	have, err := LabelOf(file)
	if err == nil && have != label {
		err = fmt.Errorf("%s has the SELinux label %q, want %q", file, have, label)
	}
	return err
}
