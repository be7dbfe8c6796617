package ostree

import (
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"machine-pivot/internal/ostree/gvariant"
	"machine-pivot/internal/selinux"
)

// Objects that are no files, directories and refs get the label of the directory that
// they are in, where the kernel gives them none: see selinux.Inherit. A file object has
// the label that its commit says, or none: that is part of its checksum.

// LabelError says that an object has an SELinux label that cannot be stored here.
type LabelError struct {
	Object ObjectName
	Label  string
	Cause  error // selinux.ErrUnknown
}

// Error says which object it is and why it cannot be stored.
func (e *LabelError) Error() string {
	return fmt.Sprintf("cannot store object %s with the SELinux label %s: %v", e.Object, e.Label, e.Cause)
}

// Unwrap is the cause.
func (e *LabelError) Unwrap() error { return e.Cause }

// CheckLabels sets what says whether a file may get an SELinux label; without it the
// policy of the running kernel does.
func (r *Repo) CheckLabels(check func(label string) error) { r.checkLabel = check }

// checkLabels is a LabelError if an object's attributes have a label that cannot be
// stored. Of each label it asks once.
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

// checkDirLabel is checkLabels for a directory's metadata, which only gets its label
// when it is deployed.
func (im *Import) checkDirLabel(n ObjectName, data []byte) error {
	v, err := gvariant.Open(dirMetaType, data)
	if err != nil {
		return corrupt(n, "%v", err)
	}
	xattrs, err := parseXattrs(v.Field(3))
	if err != nil {
		return corrupt(n, "%v", err)
	}
	return im.checkLabels(n, xattrs)
}

// cannotSet is why an object did not get an attribute. A policy that does not answer
// questions about labels refuses one that it does not know with EINVAL.
func cannotSet(n ObjectName, x xattr, err error) error {
	if x.name == selinux.Attribute && errors.Is(err, unix.EINVAL) {
		return &LabelError{n, strings.TrimRight(string(x.value), "\x00"), selinux.ErrUnknown}
	}
	return fmt.Errorf("cannot write object %s: cannot set %s: %w", n, x.name, err)
}
