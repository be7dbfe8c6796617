package rpmostree

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"machine-pivot/fault"
)

// Limits are how long rpm-ostree may take for an answer. For a status its daemon
// is started, which systemd gives 90 seconds; a rebase without a download takes a
// minute or two, more where packages are layered.
type Limits struct {
	Status time.Duration // 0: three minutes
	Rebase time.Duration // 0: 45 minutes
}

func (l Limits) status() time.Duration { return cmp.Or(l.Status, 3*time.Minute) }
func (l Limits) rebase() time.Duration { return cmp.Or(l.Rebase, 45*time.Minute) }

// daemonStatus is the part of "rpm-ostree status --json" that counts here.
type daemonStatus struct {
	Transaction []string `json:"transaction"` // method, client, path; null if there is none
	Driver      *struct {
		Name string `json:"driver-name"`
		Unit string `json:"driver-sd-unit"`
	} `json:"update-driver"`
}

// status asks rpm-ostree what it is doing; its daemon is started for that.
func (e *RpmOstree) status(ctx context.Context) (daemonStatus, error) {
	var s daemonStatus
	out, err := e.call(ctx, e.Limits.status(), "rpm-ostree", "status", "--json")
	if err != nil {
		return s, err
	}
	if err := json.Unmarshal(out, &s); err != nil {
		return s, fault.New(fault.Internal, "cannot read the status of rpm-ostree: %w", err)
	}
	if s.Driver != nil && !e.named {
		e.named = true
		e.Note(fmt.Sprintf("updates of this host are driven by %s (%s); this pivot goes past it", s.Driver.Name, s.Driver.Unit))
	}
	return s, nil
}

// idle is an error while a transaction runs; that passes.
func (s daemonStatus) idle() error {
	if len(s.Transaction) == 0 {
		return nil
	}
	return busy("transaction in progress: " + strings.Join(s.Transaction, " "))
}

func busy(what string) error {
	return fault.New(fault.Unavailable, "rpm-ostree is busy: %s", what).
		WithHint("wait for it, or end it: rpm-ostree cancel")
}

// passing are the failures of rpm-ostree that are worth another try, by what it
// says on stderr.
var passing = []string{
	// The daemon died, or is not up yet.
	"Bus owner changed, aborting", "Timeout was reached", "org.freedesktop.DBus.Error.NoReply",
	"org.freedesktop.DBus.Error.TimedOut", "org.freedesktop.DBus.Error.ServiceUnknown", "org.freedesktop.DBus.Error.NameHasNoOwner",
	"Could not connect: No such file or directory", "Could not activate remote peer",
	"client disconnected before calling Start", "rpm-ostreed.service",
	// A registry that rpm-ostree wants to ask.
	"Fetching manifest", "Unencapsulating base",
}

const seeDaemon = "see: systemctl status rpm-ostreed, journalctl -u rpm-ostreed"

// call runs rpm-ostree and tells passing failures from others.
func (e *RpmOstree) call(ctx context.Context, timeout time.Duration, argv ...string) ([]byte, error) {
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	out, err := e.Run(limited, argv...)
	switch {
	case err == nil:
		return out, nil
	case ctx.Err() == nil && limited.Err() != nil:
		return nil, fault.New(fault.Unavailable, "rpm-ostree did not answer within %s: %w", timeout, err).WithHint(seeDaemon)
	case strings.Contains(err.Error(), "ransaction in progress"), strings.Contains(err.Error(), "Reboot initiated, cannot start new transaction"):
		return nil, busy(err.Error())
	}
	for _, text := range passing {
		if strings.Contains(err.Error(), text) {
			return nil, fault.New(fault.Unavailable, "%w", err).WithHint(seeDaemon)
		}
	}
	return nil, err
}
