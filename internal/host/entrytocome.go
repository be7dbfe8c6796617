package host

import (
	"slices"
	"strings"

	"machine-pivot/internal/ostree"
	"machine-pivot/pivot"
)

// entryToCome returns what is known of the boot entry that the commit of a plan is going to write; the rest is empty.
// The arguments are the plan's. The files are those that libostree copies from the system's commit. For the image that
// runs they are in its entry, for another one they are known once that is in the repository. What rpm-ostree puts on
// top may have a kernel of its own, and so is not known.
func (h *Host) entryToCome(plan pivot.Plan) (e ostree.BootEntry, err error) {
	e.Options = plan.Kargs.Final.String()
	booted, err := h.booted()
	if err != nil {
		return e, err
	}
	if !plan.Image.Changed && len(plan.Packages) == 0 {
		all, err := h.Sysroot().Deployments()
		running := withEntry(booted, all).Entry
		e.Board, e.Aboot, e.Initrds = running.Board, running.Aboot, running.Initrds
		return e, err
	}
	if booted.Origin.HasInitramfsFiles() {
		e.Initrds = []string{"the image's", "rpm-ostree's"}
	}
	commit := plan.To().Image.Commit
	if commit == "" || booted.Origin.Layered() || len(plan.Packages) > 0 {
		return e, nil
	}
	e.Board, err = h.boardKeys(commit)
	return e, err
}

// boardKeys returns the keys that libostree writes into the boot entry of a commit in the repository for what only some
// boot loaders can use (ostree-sysroot-deploy.c, install_deployment_kernel).
func (h *Host) boardKeys(commit string) (keys []string, err error) {
	c, err := ostree.ParseChecksum(commit)
	if err != nil {
		return nil, err
	}
	repo, err := h.ReadRepo()
	if err != nil {
		return nil, err
	}
	files, err := repo.BootFiles(c)
	for _, f := range files {
		switch {
		case f.Name == "aboot.img":
			keys = append(keys, "aboot")
		case strings.HasPrefix(f.Name, "dtb/"):
			keys = append(keys, "fdtdir")
		case f.Name == "devicetree", strings.HasPrefix(f.Name, "devicetree-"):
			keys = append(keys, "devicetree")
		}
	}
	slices.Sort(keys)
	return slices.Compact(keys), err
}
