package firstboot

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/host"
	"machine-pivot/internal/hostfiles"
	"machine-pivot/pivot"
	"machine-pivot/rpmostree"
)

// Place is where a run happens: the started system (System), or an initramfs before
// the system starts (Initramfs).
type Place interface {
	pivot.Place
	// Enter begins a first boot here, if that is the administrator's choice.
	Enter(mode host.Mode) error
	// Network is an error if there is no network here and none can be had.
	Network(ctx context.Context) error
	// Engine makes this place's deployments; false: the caller chooses.
	Engine(h *host.Host) (pivot.Engine, bool)
	// Conclude decides about the end of a first boot here: an error, or none, with the
	// reason, where the first boot goes on elsewhere.
	Conclude(err error, on host.OnFailure) (aside, failure error)
}

// placeOrDefault is where the machine's runs happen.
func (m *Machine) placeOrDefault() Place {
	if m.Place != nil {
		return m.Place
	}
	return System{}
}

// System is the started system. It takes whatever comes.
type System struct{}

var _ Place = System{}

// Accept implements pivot.Place.
func (System) Accept(pivot.Decision, pivot.State) error { return nil }

// Leave implements pivot.Place.
func (System) Leave(context.Context) error { return nil }

// Enter implements Place.
func (System) Enter(host.Mode) error { return nil }

// Network implements Place: systemd has ordered the run behind it.
func (System) Network(context.Context) error { return nil }

// Engine implements Place.
func (System) Engine(*host.Host) (pivot.Engine, bool) { return nil, false }

// Conclude implements Place.
func (System) Conclude(err error, _ host.OnFailure) (aside, failure error) { return nil, err }

// Initramfs is an initramfs, for a first boot that runs before the system starts.
type Initramfs struct {
	Early Early
	Disk  hostfiles.Disk // of the system
}

var _ Place = Initramfs{}

// Early is what an initramfs has to do about mounts, network and Ignition. What it
// cannot do is of kind fault.Later.
type Early interface {
	// Mount completes the system's file systems.
	Mount() error
	// Network brings the network up, unless it is.
	Network(ctx context.Context) error
	// KeepNetwork lets the system have the initramfs's network settings, if it would
	// have got them when it starts. There may be no network afterwards.
	KeepNetwork(ctx context.Context) error
	// CloseIgnition makes what Ignition wrote durable, and keeps the next boot from
	// running it again.
	CloseIgnition(disk hostfiles.Disk) error
}

// Enter implements Place.
func (p Initramfs) Enter(mode host.Mode) error {
	if mode != host.ModeInitramfs {
		return later("pivot.mode is %s", mode)
	}
	return p.Early.Mount()
}

// Network implements Place.
func (p Initramfs) Network(ctx context.Context) error { return p.Early.Network(ctx) }

// Engine implements Place: there is only one that works on a system that has not started.
func (p Initramfs) Engine(h *host.Host) (pivot.Engine, bool) {
	return &rpmostree.Direct{Sysroot: h.Sysroot(), Run: h.Run, State: []string{pivot.StateDir}}, true
}

// Accept implements pivot.Place: only what changes the system can be done here.
func (p Initramfs) Accept(decision pivot.Decision, state pivot.State) error {
	switch {
	case decision.Action == pivot.ActionClose:
		return later("the machine is what was asked for, which the started system proves")
	case decision.Action == pivot.ActionHold:
		return later("somebody went back to this system, which the started one says")
	case decision.Action == pivot.ActionGiveUp:
		return later("this was tried %d times", decision.Attempt)
	case len(state.Booted.Options.Values("root")) == 0:
		// Fedora CoreOS adds it during the first boot.
		return later("the boot entry has no root= yet, which the next one would inherit")
	}
	return nil
}

// Leave implements pivot.Place: it does what else happens between Ignition and the
// system's start, for a system that is left before it starts is all that the new one
// inherits from.
func (p Initramfs) Leave(ctx context.Context) error {
	if err := p.Early.KeepNetwork(ctx); err != nil {
		return err
	}
	return p.Early.CloseIgnition(p.Disk)
}

// Conclude implements Place. It steps aside where the started system may succeed: that
// is told why, and what was imported is kept. What is known to fail there too stops
// the boot, unless the administrator wants the started system to tell of it.
func (p Initramfs) Conclude(err error, on host.OnFailure) (aside, failure error) {
	if err == nil || !passes(err) && on != host.OnFailureSystem {
		return nil, err
	}
	return fmt.Errorf("stepping aside for the started system: %w", err), nil
}

// passes reports whether the started system may succeed where an initramfs failed.
func passes(err error) bool {
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		return true // it updates what it trusts when it first starts
	}
	switch fault.KindOf(err) {
	case fault.BadInput, fault.Refused, fault.CannotWrite:
		return false
	}
	return true // also what nobody foresaw: it may be the initramfs
}

func later(format string, args ...any) error {
	return fault.New(fault.Later, format, args...)
}
