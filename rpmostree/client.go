package rpmostree

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"machine-pivot/internal/fault"
)

// Limits are timeouts for calls of rpm-ostree. A status may have to start the daemon, for which
// systemd allows 90 seconds. A rebase without a download takes a minute or two, or more if
// packages are layered.
type Limits struct {
	Status time.Duration // 0 is three minutes
	Rebase time.Duration // 0 is 45 minutes
}

func (l Limits) forStatus() time.Duration { return cmp.Or(l.Status, 3*time.Minute) }
func (l Limits) forRebase() time.Duration { return cmp.Or(l.Rebase, 45*time.Minute) }

// daemonStatus is the part of "rpm-ostree status --json" that is used here.
type daemonStatus struct {
	Transaction []string `json:"transaction"` // method, client, path; null if there is none
	Driver      *struct {
		Name string `json:"driver-name"`
		Unit string `json:"driver-sd-unit"`
	} `json:"update-driver"`
}

// status returns the status of rpm-ostree. Its daemon is started if necessary. It notes an update driver once. The
// driver, such as Zincati, is bypassed, because an administrator has requested this change; a running transaction is
// work in progress, and waited for.
func (e *RpmOstree) status(ctx context.Context) (daemonStatus, error) {
	var s daemonStatus
	var out []byte
	err := within(ctx, e.Limits.forStatus(), func(ctx context.Context) (err error) {
		out, err = e.Run(ctx, "rpm-ostree", "status", "--json")
		return err
	})
	if err != nil {
		return s, err
	}
	if err := json.Unmarshal(out, &s); err != nil {
		return s, fault.New(fault.Internal, "cannot read the status of rpm-ostree: %w", err)
	}
	if s.Driver != nil && !e.driverNoted {
		e.driverNoted = true
		e.Note(fmt.Sprintf("updates of this host are managed by %s (%s); pivot bypasses it", s.Driver.Name, s.Driver.Unit))
	}
	return s, nil
}

// idle returns a transient error while a transaction runs.
func (s daemonStatus) idle() error {
	if len(s.Transaction) == 0 {
		return nil
	}
	return busy("transaction in progress: " + strings.Join(s.Transaction, " "))
}

// idle returns an error unless rpm-ostree reports that no transaction runs.
func (e *RpmOstree) idle(ctx context.Context) error {
	s, err := e.status(ctx)
	if err != nil {
		return err
	}
	return s.idle()
}

const seeDaemon = "see: systemctl status rpm-ostreed, journalctl -u rpm-ostreed"

// within calls work, which asks rpm-ostree for something, with a timeout, and classifies its failure.
func within(ctx context.Context, timeout time.Duration, work func(context.Context) error) error {
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	err := work(limited)
	switch {
	case err == nil:
		return nil
	case ctx.Err() == nil && limited.Err() != nil:
		return fault.New(fault.Unavailable, "rpm-ostree did not answer within %s: %w", timeout, err).WithHint(seeDaemon)
	}
	return classify(err)
}
