package host

import (
	"context"
	"errors"
	"io/fs"
	"slices"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/ostree"
	"machine-pivot/kargs"
	"machine-pivot/pivot"
)

// Observe reads the machine's state, including the entries, units and packages that a target
// names.
func (h *Host) Observe(ctx context.Context, target pivot.Target) (pivot.State, error) {
	state, found, err := h.systems()
	if err != nil {
		return pivot.State{}, err
	}
	if state.Etc, err = h.readEtc(found.booted, target); err != nil {
		return pivot.State{}, err
	}
	if state.Packages, err = h.packages(ctx, found.booted, target.Packages); err != nil {
		return pivot.State{}, err
	}
	return state, h.observeNext(ctx, &state, found, target)
}

// Systems is Observe without what is in the systems: it does not read their files and packages, so that nothing there
// stops it.
func (h *Host) Systems() (pivot.State, error) {
	state, _, err := h.systems()
	return state, err
}

// systems are the deployments that run now, and after the next boot.
type systems struct{ booted, next ostree.Deployment }

func (h *Host) systems() (state pivot.State, found systems, err error) {
	booted, err := h.booted()
	if err != nil {
		return state, found, err
	}
	all, err := h.Sysroot().Deployments()
	if err != nil {
		return state, found, err
	}
	if state.BootID, err = h.Start(); err != nil {
		return state, found, err
	}
	if state.Cmdline, err = h.cmdline(); err != nil {
		return state, found, err
	}
	state.Deployments = len(all)
	running := withEntry(booted, all)
	if state.ByLoader, err = h.byLoader(state.Cmdline, running.Entry); err != nil {
		return state, found, err
	}
	if state.Booted, err = h.Deployment(running); err != nil {
		return state, found, err
	}
	next, err := h.findNext(&state, booted, all)
	return state, systems{booted, next}, err
}

// CheckBooted returns an error if the machine is not booted from an ostree deployment, so that
// nothing can change it. It does not write, not even the files for status and lock.
func (h *Host) CheckBooted() error {
	if _, err := h.cmdline(); errors.Is(err, fs.ErrNotExist) {
		return err // it is no machine at all
	}
	if _, err := h.Sysroot().Booted(); errors.Is(err, ostree.ErrNotBooted) {
		return h.notBooted()
	}
	return nil // any other problem is that of the run
}

// booted returns the booted deployment.
func (h *Host) booted() (ostree.Deployment, error) {
	d, err := h.Sysroot().Booted()
	if errors.Is(err, ostree.ErrNotBooted) {
		err = h.notBooted()
	}
	return d, err
}

// composefsArgument is the kernel argument that names the system of a host that bootc has installed with its
// composefs backend (crates/lib/src/composefs_consts.rs). Such a host has neither /run/ostree-booted nor an ostree
// repository.
const composefsArgument = "composefs"

func (h *Host) notBooted() error {
	if line, err := h.cmdline(); err == nil && len(line.Values(composefsArgument)) > 0 {
		return fault.New(fault.Refused, "cannot pivot this host: it was installed with bootc's composefs backend (%s= on the kernel command line) and has no ostree repository", composefsArgument).
			WithHint("install it with bootc's ostree backend, without --composefs-backend; what is installed now, only bootc can change: bootc switch, bootc upgrade")
	}
	return fault.New(fault.Refused, "cannot pivot this host: it is not booted from an ostree deployment").
		WithHint("pivot works on image-based hosts only (rpm-ostree, bootc or plain ostree)")
}

// withEntry returns the booted deployment with its boot entry, if it has one.
func withEntry(booted ostree.Deployment, all []ostree.Deployment) ostree.Deployment {
	if i := slices.IndexFunc(all, func(d ostree.Deployment) bool { return d.ID() == booted.ID() }); i >= 0 {
		return all[i]
	}
	return booted
}

// Deployment returns the state of one of the machine's deployments, which must have a boot
// entry.
func (h *Host) Deployment(d ostree.Deployment) (pivot.Deployment, error) {
	if d.Entry.Options == "" {
		// The new entry inherits these options: without them the machine would not boot.
		return pivot.Deployment{}, fault.New(fault.Refused, "cannot pivot this host: deployment %s has no boot entry in /boot/loader/entries", d.ID()).
			WithHint("check that /boot is mounted, and that the link /boot/loader leads to loader.0 or loader.1 beside it, whichever there is: ln -sfn loader.1 /boot/loader")
	}
	p := pivot.Deployment{
		Stateroot: d.Stateroot,
		Commit:    d.Checksum.String(),
		Serial:    d.Serial,
		Manifest:  h.manifestOf(d.Base),
		Options:   kargs.Split(d.Entry.Options),
		Sources:   d.Entry.Sources,
	}
	p.Image = imageOf(d.Origin, p.Manifest)
	if d.Base != d.Checksum {
		p.Base = d.Base.String()
	}
	return p, nil
}
