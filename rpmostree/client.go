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

// Limits are how long rpm-ostree may take for an answer. For a status its daemon
// is started, which systemd gives 90 seconds; a rebase without a download takes a
// minute or two, more where packages are layered.
type Limits struct {
	Status time.Duration // 0: three minutes
	Rebase time.Duration // 0: 45 minutes
}

func (l Limits) forStatus() time.Duration { return cmp.Or(l.Status, 3*time.Minute) }
func (l Limits) forRebase() time.Duration { return cmp.Or(l.Rebase, 45*time.Minute) }

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
	out, err := e.call(ctx, e.Limits.forStatus(), e.Run, "rpm-ostree", "status", "--json")
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

// idle is an error unless rpm-ostree says that no transaction runs.
func (e *RpmOstree) idle(ctx context.Context) error {
	s, err := e.status(ctx)
	if err != nil {
		return err
	}
	return s.idle()
}

const seeDaemon = "see: systemctl status rpm-ostreed, journalctl -u rpm-ostreed"

// call runs rpm-ostree and tells passing failures from others.
func (e *RpmOstree) call(ctx context.Context, timeout time.Duration, run Run, argv ...string) ([]byte, error) {
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	out, err := run(limited, argv...)
	switch {
	case err == nil:
		return out, nil
	case ctx.Err() == nil && limited.Err() != nil:
		return nil, fault.New(fault.Unavailable, "rpm-ostree did not answer within %s: %w", timeout, err).WithHint(seeDaemon)
	}
	return nil, classify(err)
}
