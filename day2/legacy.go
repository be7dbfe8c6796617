package day2

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"strings"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/osimage/imageref"
	"machine-pivot/kargs"
)

// A pivot by hand honors files of the old pivot tool: imageref.PullspecPath, kargs.LegacyPath, and
// rebootNeededPath: if it exists, the machine reboots. What they ask for becomes part of the one
// transaction. The first two are not removed: the same request again changes nothing.
const rebootNeededPath = "/run/pivot/reboot-needed"

// legacyFile returns the content of one of the old tool's files; "" if it does not exist.
func (r *Rebase) legacyFile(path string) (string, error) {
	text, err := hostfiles.ReadSettings(r.Host.Root, path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fault.New(fault.BadInput, "cannot read %s: %w", path, err).WithHint("correct %s, or remove it and give IMAGE and arguments to pivot rebase", path)
	}
	return strings.TrimSpace(string(text)), nil
}

// reference returns the requested image: from the command line, the download, or the old tool's
// file; zero keeps the booted one.
func (r *Rebase) reference(ctx context.Context, options RunOptions) (name imageref.Reference, err error) {
	text := r.Image
	switch {
	case r.Upgrade:
		return r.followed(ctx)
	case text != "":
	case options.Downloaded:
		d, err := recordedDownload(r.Machine)
		return d.Image.Name, err
	default:
		text, err = r.legacyFile(imageref.PullspecPath)
	}
	if err != nil {
		return name, err
	}
	return parseImage(text)
}

// parseImage parses the name of an image; "" is none.
func parseImage(text string) (name imageref.Reference, err error) {
	if text != "" {
		name, err = imageref.Parse(text)
	}
	return name, err
}

// kargs returns the requested changes of kernel arguments. The command line comes after the
// file, so it takes precedence for an argument that both set.
func (r *Rebase) kargs() (kargs.Change, error) {
	if r.Upgrade {
		return kargs.Change{}, nil
	}
	text, err := r.legacyFile(kargs.LegacyPath)
	if err != nil {
		return kargs.Change{}, err
	}
	change, err := kargs.ParseLegacy(text)
	if err != nil {
		return kargs.Change{}, fault.New(fault.BadInput, "cannot use %s: %w", kargs.LegacyPath, err).WithHint("correct %s, or remove it and give the arguments to pivot rebase", kargs.LegacyPath)
	}
	if change.New, err = r.Arguments(append(change.New, r.Append...)); err != nil {
		return change, err
	}
	for _, entry := range r.Delete {
		change.Delete = append(change.Delete, kargs.Split(entry)...)
	}
	return change, nil
}

func (r *Rebase) rebootNeeded() bool {
	_, err := os.Stat(r.Host.Path(rebootNeededPath))
	return err == nil
}
