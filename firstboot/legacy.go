package firstboot

import (
	"errors"
	"io/fs"
	"os"
	"strings"

	"machine-pivot/internal/fault"
	"machine-pivot/kargs"
)

// The files of the old pivot tool that count for a pivot by hand. What they ask
// for joins the one transaction. The first two stay where they are: asked for
// again, they change nothing.
const (
	PullspecPath     = "/etc/pivot/image-pullspec" // the image, if none is given
	KernelArgsPath   = "/etc/pivot/kernel-args"    // changes of kernel arguments: see kargs.ParseLegacy
	rebootNeededPath = "/run/pivot/reboot-needed"  // its presence asks for the reboot
)

// legacyFile reads one of the old tool's files; "" if it is not there.
func (r *Rebase) legacyFile(path string) (string, error) {
	text, err := os.ReadFile(r.Host.Path(path))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fault.New(fault.BadInput, "cannot read what is asked for: %w", err)
	}
	return strings.TrimSpace(string(text)), nil
}

// reference is the image that is asked for: on the command line, or in the old
// tool's file; "" keeps the booted one.
func (r *Rebase) reference() (string, error) {
	if r.Image != "" {
		return r.Image, nil
	}
	return r.legacyFile(PullspecPath)
}

// kargs are the changes of kernel arguments that are asked for. Of one argument
// the command line, being later, wins over the file.
func (r *Rebase) kargs() (kargs.Change, error) {
	text, err := r.legacyFile(KernelArgsPath)
	if err != nil {
		return kargs.Change{}, err
	}
	change, err := kargs.ParseLegacy(text)
	if err != nil {
		return kargs.Change{}, fault.New(fault.BadInput, "cannot use %s: %w", KernelArgsPath, err)
	}
	if change.New, err = r.arguments(append(change.New, r.Append...)); err != nil {
		return change, err
	}
	for _, entry := range r.Delete {
		change.Delete = append(change.Delete, kargs.Split(entry)...)
	}
	return change, nil
}

func (r *Rebase) rebootNeeded() bool {
	_, err := os.Stat(r.Host.Path(rebootNeededPath))
	return !errors.Is(err, fs.ErrNotExist)
}
