package ostree

import (
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"machine-pivot/internal/selinux"
)

// SELinux labels in a repository. A file object has the label that is part of its checksum,
// or none. All else (other objects, directories, refs) gets the label of its directory, if
// the kernel has not given it one: see selinux.Inherit.

// LabelError is the error of an object with an SELinux label that cannot be stored here.
type LabelError struct {
	Object ObjectName
	Label  string
	Cause  error // selinux.ErrUnknown
}

// Error implements error.
func (e *LabelError) Error() string {
	return fmt.Sprintf("cannot store object %s with the SELinux label %s: %v", e.Object, e.Label, e.Cause)
}

// Unwrap returns the cause.
func (e *LabelError) Unwrap() error { return e.Cause }

// CheckLabels sets the function that says why a label cannot be stored (nil: it can).
// Without it the policy of the running kernel is asked.
func (r *Repo) CheckLabels(check func(label string) error) { r.checkLabel = check }

// checkLabels is a LabelError if an object's label cannot be stored. Each label is checked
// once for an import.
func (im *Import) checkLabels(n ObjectName, xattrs []xattr) error {
	for _, x := range xattrs {
		if x.name != selinux.Attribute {
			continue
		}
		label := strings.TrimRight(string(x.value), "\x00")
		if err := im.askLabel(label); err != nil {
			return &LabelError{n, label, err}
		}
	}
	return nil
}

func (im *Import) askLabel(label string) error {
	im.mu.Lock()
	err, known := im.labels[label]
	im.mu.Unlock()
	if known {
		return err
	}
	check := im.repo.checkLabel
	if check == nil {
		check = selinux.Running("/").Check
	}
	err = check(label)
	im.mu.Lock()
	defer im.mu.Unlock()
	im.labels[label] = err
	return err
}

// checkDirLabel is checkLabels for a DirMeta. The label is only set when the directory is
// deployed, but then the failure would come too late.
func (im *Import) checkDirLabel(n ObjectName, data []byte) error {
	v, err := dirMetaType.Open(data)
	if err != nil {
		return corrupt(n, "%v", err)
	}
	xattrs, err := parseXattrs(v.Field(3))
	if err != nil {
		return corrupt(n, "%v", err)
	}
	return im.checkLabels(n, xattrs)
}

// cannotSet is the error for an attribute that could not be set. EINVAL for a label means
// that the policy does not know it: not every policy answers the question beforehand.
func cannotSet(n ObjectName, x xattr, err error) error {
	if x.name == selinux.Attribute && errors.Is(err, unix.EINVAL) {
		return &LabelError{n, strings.TrimRight(string(x.value), "\x00"), selinux.ErrUnknown}
	}
	return fmt.Errorf("cannot write object %s: cannot set %s: %w", n, x.name, err)
}
