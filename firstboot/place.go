package firstboot

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/host"
	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/initramfs"
	"machine-pivot/internal/machine"
	"machine-pivot/internal/settings"
	"machine-pivot/pivot"
	"machine-pivot/rpmostree"
)

// Initramfs is an initramfs, in which a first boot runs before the system starts.
type Initramfs struct {
	Early Early
	Disk  hostfiles.Disk // of the system
}

var _ machine.Place = Initramfs{}

// Early handles mounts, network and Ignition in an initramfs. An error is of kind fault.Later
// if the initramfs cannot do what is needed.
type Early interface {
	// Mount mounts what the system's file systems lack.
	Mount() error
	// Network brings the network up, unless it is up already.
	Network(ctx context.Context) error
	// KeepNetwork writes the initramfs's network settings into the system, if they would
	// be written before the system starts. There may be no network afterwards.
	KeepNetwork(ctx context.Context) error
	// CloseIgnition makes what Ignition wrote durable, and keeps the next boot from
	// running it again.
	CloseIgnition(disk hostfiles.Disk) error
	// Running reads what the machine was started with. It is called before the commit. The error says why no
	// deployment can be entered here.
	Running(ctx context.Context) (initramfs.Running, error)
	// RequestEnter has the boot go on into the committed deployment, given by its ID, when this
	// program has ended. The error says why that is impossible.
	RequestEnter(ctx context.Context, running initramfs.Running, deployment string) error
}

// Enter implements machine.Place.
func (p Initramfs) Enter(mode settings.Mode) error {
	if mode != settings.ModeInitramfs {
		return later("pivot.mode is %s", mode)
	}
	return p.Early.Mount()
}

// Started implements machine.Place.
func (p Initramfs) Started() bool { return false }

// Network implements machine.Place.
func (p Initramfs) Network(ctx context.Context) error { return p.Early.Network(ctx) }

// Engine implements machine.Place: only one engine works on a system that has not started.
func (p Initramfs) Engine(h *host.Host) (pivot.Engine, bool) {
	return &rpmostree.Direct{Ostree: rpmostree.Ostree{Sysroot: h.Sysroot(), Run: h.Run, Space: h.Space}, State: []string{pivot.StateDir}}, true
}

// Continuation implements machine.Place.
func (p Initramfs) Continuation(ctx context.Context) (machine.Continuation, error) {
	running, err := p.Early.Running(ctx)
	if err == nil {
		err = running.Refusal()
	}
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, deployment string) error {
		return p.Early.RequestEnter(ctx, running, deployment)
	}, nil
}

// Accept implements pivot.Place: only a change of the system can be carried out here.
func (p Initramfs) Accept(decision pivot.Decision, state pivot.State) error {
	switch {
	case decision.Action == pivot.ActionClose:
		return later("the machine is what was asked for, which the started system proves")
	case decision.Yields(pivot.DemandStay):
		return later("somebody went back to this system, which the started one says")
	case decision.Yields(pivot.DemandReturn):
		return later("the new system is not what was asked for; the started system reports that and boots the old one")
	case decision.Action == pivot.ActionGiveUp:
		return later("this was tried %d times", decision.Attempt)
	case len(state.Booted.Options.Values("root")) == 0:
		// Fedora CoreOS adds it during the first boot.
		return later("the boot entry has no root= yet, which the next one would inherit")
	}
	return nil
}

// Leave implements pivot.Place. It does what normally happens between Ignition and the start
// of the system, because this system never starts and the new one inherits from it as it is.
func (p Initramfs) Leave(ctx context.Context) error {
	if err := p.Early.KeepNetwork(ctx); err != nil {
		return err
	}
	return p.Early.CloseIgnition(p.Disk)
}

// Conclude implements machine.Place. It steps aside, with the reason, if the started system may
// succeed; what was imported is kept. An error that the started system would have too
// stops the boot, unless the administrator wants the started system to report it.
func (p Initramfs) Conclude(err error, on settings.OnFailure) (aside, failure error) {
	if err == nil || !systemMaySucceed(err) && on != settings.OnFailureSystem {
		return nil, err
	}
	return fmt.Errorf("stepping aside for the started system: %w", err), nil
}

// systemMaySucceed reports whether the started system may succeed where an initramfs failed.
func systemMaySucceed(err error) bool {
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		return true // the system updates its trust store when it first starts
	}
	// Unexpected errors are not among these: the initramfs may cause them.
	return !slices.Contains([]fault.Kind{fault.BadInput, fault.Refused, fault.CannotWrite}, fault.KindOf(err))
}

func later(format string, args ...any) error {
	return fault.New(fault.Later, format, args...)
}
