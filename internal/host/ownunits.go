package host

import (
	"errors"
	"io/fs"
	"path"
	"strings"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/ostree"
)

// UnitInEtc is where a unit of pivot's is that an administrator has put there, or whoever brings
// pivot to a machine that has none in its image. It goes before UnitInImage.
func UnitInEtc(unit string) string { return "/etc/systemd/system/" + unit }

// UnitInImage is where the image has a unit of pivot's.
func UnitInImage(unit string) string { return "/usr/lib/systemd/system/" + unit }

// Enablement is the link that enables a unit of pivot's, by the link's path, for the next system to
// have it too: that image's own default could be that it is not enabled. It is an error, which
// names what the unit would do, if it is not enabled here.
func (h *Host) Enablement(link, does string) (hostfiles.File, error) {
	f, there, err := hostfiles.Read(h.Root, link)
	if err == nil && !there {
		unit := path.Base(link)
		err = fault.New(fault.Refused, "%s is not enabled, which would %s", unit, does).WithHint("systemctl enable %s", unit)
	}
	return f, err
}

// WillHaveUnit reports whether the system of a commit, which is in the repository, has a unit of
// pivot's: its own, or the one that is in /etc here, which goes along.
func (h *Host) WillHaveUnit(unit, commit string) (bool, error) {
	if here, err := h.Has(UnitInEtc(unit)); err != nil || here {
		return here, err
	}
	c, err := ostree.ParseChecksum(commit)
	if err != nil {
		return false, err
	}
	repo, err := h.ReadRepo()
	if err != nil {
		return false, err
	}
	if _, err = repo.ReadFile(c, strings.TrimPrefix(UnitInImage(unit), "/")); errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}
