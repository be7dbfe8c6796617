package machine

import (
	"context"
	"errors"

	"machine-pivot/internal/host"
	"machine-pivot/internal/settings"
	"machine-pivot/pivot"
)

// Place is where a command runs: in the started system (System), or in an initramfs before the
// system starts.
type Place interface {
	pivot.Place
	// Started reports whether the system has started, so that it has services.
	Started() bool
	// Enter prepares a first boot here. It returns an error if the mode selects another place.
	Enter(mode settings.Mode) error
	// Network returns an error if there is no network here and none can be brought up.
	Network(ctx context.Context) error
	// Engine returns the engine that makes deployments here; false: the caller chooses one.
	Engine(h *host.Host) (pivot.Engine, bool)
	// Continuation is called before a commit, and returns the way into the system that it makes the next one, without a reboot.
	// The error says why there is none.
	Continuation(ctx context.Context) (Continuation, error)
	// Conclude turns the error of a first boot into its result here: the error itself
	// (failure), or the reason why the first boot continues elsewhere (aside).
	Conclude(err error, on settings.OnFailure) (aside, failure error)
}

// Where returns the place where the machine's commands run.
func (m *Machine) Where() Place {
	if m.Place != nil {
		return m.Place
	}
	return System{m}
}

// System is the started system. It accepts every decision.
type System struct{ m *Machine }

var _ Place = System{}

// Accept implements pivot.Place.
func (System) Accept(pivot.Decision, pivot.State) error { return nil }

// Leave implements pivot.Place: a new deployment inherits /etc when the first boots of others have ended.
func (s System) Leave(ctx context.Context) error { return s.m.AwaitOthers(ctx) }

// Started implements Place.
func (System) Started() bool { return true }

// Enter implements Place.
func (System) Enter(settings.Mode) error { return nil }

// Network implements Place: systemd orders the run after the network.
func (System) Network(context.Context) error { return nil }

// Engine implements Place.
func (System) Engine(*host.Host) (pivot.Engine, bool) { return nil, false }

// Continuation implements Place: there is none.
func (System) Continuation(context.Context) (Continuation, error) {
	return nil, errors.New("only an initramfs can do that, on a first boot")
}

// Conclude implements Place.
func (System) Conclude(err error, _ settings.OnFailure) (aside, failure error) { return nil, err }
