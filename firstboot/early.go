package firstboot

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"

	"machine-pivot/fault"
	"machine-pivot/host"
	"machine-pivot/hostfiles"
	"machine-pivot/pivot"
)

// Early is the initramfs, for a first boot that runs before the system starts.
// What it cannot do is of kind fault.Later.
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

// enter begins a first boot in an initramfs, if that is the administrator's choice.
func (b *FirstBoot) enter(mode host.Mode) error {
	if mode != host.ModeInitramfs {
		return later("pivot.mode is %s", mode)
	}
	return b.Early.Mount()
}

// leave is why an initramfs has nothing to do about a decision, or nil.
func leave(decision pivot.Decision, state pivot.State) error {
	switch {
	case decision.Action == pivot.Close:
		return later("the machine is what was asked for, which the started system proves")
	case decision.Action == pivot.Hold:
		return later("somebody went back to this system, which the started one says")
	case decision.Action == pivot.GiveUp:
		return later("this was tried %d times", decision.Attempt)
	case len(state.Booted.Options.Values("root")) == 0:
		// Fedora CoreOS adds it during the first boot.
		return later("the boot entry has no root= yet, which the next one would inherit")
	}
	return nil
}

// leaveInitramfs does what else happens between Ignition and the system's start: a
// system that is left before it starts is all that the new one inherits from.
func (m *Machine) leaveInitramfs(ctx context.Context) error {
	if err := m.Early.KeepNetwork(ctx); err != nil {
		return err
	}
	return m.Early.CloseIgnition(m.Host.Disk)
}

// settle decides about the end of a run in an initramfs. It steps aside, without an
// error, where the started system may succeed: it is told why, and what was
// imported is kept. What is known to fail there too stops the boot, unless the
// administrator wants the started system to tell of it.
func (b *FirstBoot) settle(err error, on host.OnFailure) error {
	if err == nil || !passes(err) && on != host.OnFailureSystem {
		return err
	}
	b.Progress.Note(fmt.Sprintf("stepping aside for the started system: %v", err))
	return nil
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
