package rpmostree

import (
	"errors"
	"regexp"
	"strings"

	"machine-pivot/internal/fault"
)

// transient matches messages of rpm-ostree that are worth a retry. Only the cause counts:
// the text before it names the step, which is the same for a registry that is restarting and for
// one that denies access.
//
// A transaction is tried again if it has ended because the daemon, or its child, was stopped or killed. The signal is
// SIGTERM or SIGKILL. It appears as a shell's exit status, 128 more (g_spawn_check_wait_status in GLib's gspawn.c), or
// as the status that wait(2) returns (rust/src/cmdutils.rs). Any other signal is the child's own failure.
var transient = regexp.MustCompile(`(?i)` + strings.Join([]string{
	// The daemon died, or has not started yet.
	`Bus owner changed, aborting`, `Timeout was reached`, `org\.freedesktop\.DBus\.Error\.(NoReply|TimedOut|ServiceUnknown|NameHasNoOwner)`,
	`Could not connect: No such file or directory`, `Could not activate remote peer`,
	`org\.freedesktop\.DBus\.Error\.(Disconnected|Spawn\.Child(Exited|Signaled))`,
	`client disconnected before calling Start`, `rpm-ostreed\.service`,
	`killed by signal (9|15)\b`, `exited with code (137|143)\b`, `unix_wait_status\((9|15|35072|36608)\)`,
	// No connection, no DNS, an interrupted connection.
	`connection refused`, `connection reset`, `write: broken pipe`, `network is unreachable`, `no route to host`, `unexpected EOF`,
	`i/o timeout`, `handshake timeout`, `Client\.Timeout`, `deadline exceeded`, `connection timed out`,
	`no such host`, `server misbehaving`, `failure in name resolution`,
	// The same from libcurl, for package repositories (libcurl-errors(3)).
	`Curl error \((5|6|7|16|18|28|35|52|55|56|92)\)`,
	// A server error, or a request to retry later.
	`status(:| code:| code from registry)? (5\d\d|408|429)\b`, `too ?many ?requests`,
}, "|"))

// refused matches messages of rpm-ostree about the requested packages.
var refused = regexp.MustCompile(`Packages not found: |Could not depsolve transaction|package \S+ cannot be verified`)

// classify gives a failure of rpm-ostree a kind and a hint, unless it has these already.
func classify(err error) error {
	if _, ok := errors.AsType[*fault.Error](err); ok {
		return err
	}
	if _, ok := errors.AsType[*unsupportedError](err); ok { // it would be the same again
		return fault.New(fault.Internal, "%w", err)
	}
	text := err.Error()
	switch {
	case strings.Contains(text, "ransaction in progress"), strings.Contains(text, "Reboot initiated, cannot start new transaction"):
		return busy(text)
	case errors.Is(err, errLost), transient.MatchString(text):
		return fault.New(fault.Unavailable, "%w", err).WithHint(seeDaemon)
	case strings.Contains(text, "No enabled repositories"):
		return fault.New(fault.Refused, "%w", err).WithHint(giveRepository)
	case refused.MatchString(text):
		return fault.New(fault.Refused, "%w", err).
			WithHint("the packages must fit the OS image: take both from the same release, the packages by --extensions-image or spec.baseOSExtensionsContainerImage")
	}
	return fault.New(fault.Internal, "%w", err).WithHint(seeDaemon)
}

func busy(what string) error {
	return fault.New(fault.Unavailable, "rpm-ostree is busy: %s", what).
		WithHint("wait for it, or end it: rpm-ostree cancel")
}
