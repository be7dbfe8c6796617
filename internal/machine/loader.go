package machine

import (
	"machine-pivot/internal/fault"
	"machine-pivot/internal/host"
	"machine-pivot/internal/hostfiles"
	"machine-pivot/pivot"
)

// loader checks, for a plan as well as before a change, that ostree can commit with the machine's /boot/loader.
type loader struct{ *host.Host }

var _ pivot.Contributor = loader{}

// Entries implements pivot.Contributor.
func (loader) Entries() ([]hostfiles.File, error) { return nil, nil }

// Check implements pivot.Contributor.
func (l loader) Check(pivot.Plan, []hostfiles.File) (warnings []string, err error) {
	if err := l.Sysroot().CheckLoader(); err != nil {
		return nil, fault.New(fault.Refused, "cannot change this host's next boot: %w", err).
			WithHint("make /boot/loader a link again: to loader.0 if there is no loader.0 beside it (mv /boot/loader /boot/loader.0; ln -s loader.0 /boot/loader); ostree admin status then says whether all is well")
	}
	return nil, nil
}

// Drift implements pivot.Contributor.
func (loader) Drift(pivot.State, pivot.Target) ([]pivot.Difference, error) { return nil, nil }
