package ostree

import (
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"machine-pivot/internal/hostfiles"
)

// SELinux labels in a repository. The label of a file object is one of its extended
// attributes, and so part of its checksum. Other files (metadata objects, directories, refs)
// get the label of their directory, unless the kernel has given them one: see hostfiles.InheritLabel.

// LabelError is the error for an object with an SELinux label that cannot be stored on this
// host.
type LabelError struct {
	Object ObjectName
	Label  string
	Cause  error // hostfiles.ErrUnknownLabel
}

// Error implements error.
func (e *LabelError) Error() string {
	return fmt.Sprintf("cannot store object %s with the SELinux label %s: %v", e.Object, e.Label, e.Cause)
}

// Unwrap returns the cause.
func (e *LabelError) Unwrap() error { return e.Cause }

// CheckLabels sets the function that checks whether a label can be stored; it returns nil if
// so, and the reason otherwise. The default checks with the running kernel's policy.
func (r *Repo) CheckLabels(check func(label string) error) { r.checkLabel = check }

// checkLabels returns a LabelError if an object's label cannot be stored. Each label is checked
// once per import.
func (im *Import) checkLabels(n ObjectName, xattrs []xattr) error {
	for _, x := range xattrs {
		if x.name != hostfiles.LabelAttribute {
			continue
		}
		label := strings.TrimRight(string(x.value), "\x00")
		if err := im.checkLabelOnce(label); err != nil {
			return &LabelError{n, label, err}
		}
	}
	return nil
}

// checkLabelOnce checks one label and caches the result.
func (im *Import) checkLabelOnce(label string) error {
	im.mu.Lock()
	err, known := im.labels[label]
	im.mu.Unlock()
	if known {
		return err
	}
	check := im.repo.checkLabel
	if check == nil {
		check = hostfiles.RunningPolicyIn("/").Check
	}
	err = check(label)
	im.mu.Lock()
	defer im.mu.Unlock()
	im.labels[label] = err
	return err
}

// checkDirLabel does what checkLabels does, for a DirMeta. The label is set only when the
// directory is checked out, which would be too late to fail.
func (im *Import) checkDirLabel(n ObjectName, data []byte) error {
	_, xattrs, err := parseDirMeta(data)
	if err != nil {
		return corrupt(n, "%v", err)
	}
	return im.checkLabels(n, xattrs)
}

// cannotSet returns the error for an attribute that could not be set. EINVAL for a label means
// that the policy does not know it. That can happen although checkLabels has passed: not
// every policy lets this process check a label.
func cannotSet(n ObjectName, x xattr, err error) error {
	if x.name == hostfiles.LabelAttribute && errors.Is(err, unix.EINVAL) {
		return &LabelError{n, strings.TrimRight(string(x.value), "\x00"), hostfiles.ErrUnknownLabel}
	}
	return fmt.Errorf("cannot write object %s: cannot set %s: %w", n, x.name, err)
}
