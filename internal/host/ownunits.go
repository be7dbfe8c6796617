package host

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"strings"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/ostree"
)

// UnitInEtc returns the path of one of pivot's units in /etc, where an administrator installs it, for example on a
// machine with an image without pivot. It overrides UnitInImage.
func UnitInEtc(unit string) string { return "/etc/systemd/system/" + unit }

// UnitInImage returns the path of one of pivot's units in the image.
func UnitInImage(unit string) string { return "/usr/lib/systemd/system/" + unit }

// Enablement reads the link that enables one of pivot's units, so that it can be added to the next system: its image
// may not enable the unit by default. If the unit is not enabled here, it returns an error that says what the unit
// does.
func (h *Host) Enablement(link, does string) (hostfiles.File, error) {
	f, there, err := hostfiles.Read(h.Root, link)
	if err == nil && !there {
		unit := path.Base(link)
		err = fault.New(fault.Refused, "%s is not enabled, which would %s", unit, does).WithHint("systemctl enable %s", unit)
	}
	return f, err
}

// WillHaveUnit reports whether the system of a commit in the repository will have one of
// pivot's units: from the commit, or from this system's /etc, which is merged.
func (h *Host) WillHaveUnit(unit, commit string) (bool, error) {
	_, has, err := h.NextUnit(unit, commit)
	return has, err
}

// NextUnit is WillHaveUnit with the unit's text, which is empty for a unit that is masked.
func (h *Host) NextUnit(unit, commit string) (text []byte, has bool, err error) {
	if here, err := h.Has(UnitInEtc(unit)); err != nil || here {
		text, err := os.ReadFile(h.Path(UnitInEtc(unit)))
		if errors.Is(err, fs.ErrNotExist) { // a link that leads nowhere from here
			err = nil
		}
		return text, here, err
	}
	c, err := ostree.ParseChecksum(commit)
	if err != nil {
		return nil, false, err
	}
	repo, err := h.ReadRepo()
	if err != nil {
		return nil, false, err
	}
	text, err = repo.ReadFile(c, strings.TrimPrefix(UnitInImage(unit), "/"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, false, nil
	}
	return text, err == nil, err
}
