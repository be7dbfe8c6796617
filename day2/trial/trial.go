// Package trial lets a new system prove itself before it is kept.
//
// A trial fails unless it is confirmed: the new system is committed like any other, but the old
// one stays the default and the new one is booted once. So a kernel that hangs needs no boot
// counting: the next reset boots the old system.
//
// feature joins it to a change, by a flag or by the setting fallback=auto. The steps are methods of Conductor. In the old
// system, Enter boots the new one. There, Conduct decides automatically, or Confirm on behalf of an
// administrator. Back in the old system, Conduct closes a failed trial; so does PrepareChange
// before any other change. The journal carries the trial between the steps (pivot.Trial), and
// Trial.Judge derives its state.
package trial

import (
	"context"
	"time"

	"machine-pivot/internal/host"
	"machine-pivot/internal/hostfiles"
	"machine-pivot/pivot"
	systemdunits "machine-pivot/systemd-units"
)

// Unit is the systemd unit that conducts a trial in the new system, and closes it in the old one.
const Unit = systemdunits.Trial

// unitWants is the link that enables Unit.
const unitWants = "/etc/systemd/system/sysinit.target.wants/" + Unit

// Look is the time between two looks at a system on trial.
const Look = 5 * time.Second

// tryAgain is the hint if the system on trial could not be booted. No other reboot enters it.
const tryAgain = "the next boot starts the running system; the same command tries the new one again"

// Conductor takes a trial from one state to the next, on one machine. The callers of its methods
// must have opened the journal and hold the machine's lock, unless a method says otherwise.
type Conductor struct {
	Host     *host.Host
	Progress *pivot.Progress
	// Differences returns how the running system differs from the last target.
	Differences func(ctx context.Context) ([]string, error)
	// Reboot requests a reboot by calling by, with retries, and then waits for the reboot: it
	// returns when the context ends. into names what is booted, and hint says what to do if the
	// reboot fails.
	Reboot func(ctx context.Context, into, hint string, by func(context.Context) error) error
	// ClosedFirstBoot returns the digest of the file of a first boot that has ended in the running system; "" if none has.
	ClosedFirstBoot func() (hostfiles.Digest, error)

	noted string // what noteLacks has noted last
	told  bool   // the boot loader is told to start the new system, or could not be told to forget that
	still string // what tryOldFirst has noted last
}
