package machine

import (
	"context"

	"machine-pivot/internal/settings"
	"machine-pivot/pivot"
)

// Fallback has the boot loader start the system that a first boot has committed only once, and the old
// one again unless the first boot proves the new one: the setting fallback=auto. The journal must be
// open.
type Fallback interface {
	// Try returns the request for a commit. An error says why this machine cannot.
	Try(ctx context.Context, m *Machine, method settings.RebootMethod) (*pivot.Trying, error)
	// Without returns the warning for a commit for which Try has returned an error.
	Without(why error) string
	// Enter reboots into the committed system, once.
	Enter(ctx context.Context, m *Machine, method settings.RebootMethod) error
	// Proves reports whether the running system was entered like this, and is still to be proven. In
	// the started system it then makes the old one the default, unless it is, and it completes a Keep that
	// was interrupted.
	Proves(ctx context.Context, m *Machine) (bool, error)
	// Keep makes the running system the default, because it is proven.
	Keep(ctx context.Context, m *Machine) error
	// Return makes the old system the default, because the running one lacks something. It reboots into it,
	// or returns an error that says what is lacking.
	Return(ctx context.Context, m *Machine, lacks string, reboot bool) error
}
