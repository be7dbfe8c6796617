package rpmostree

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/godbus/dbus/v5"

	"machine-pivot/pivot"
)

const (
	busName     = "org.projectatomic.rpmostree1"
	sysrootPath = "/org/projectatomic/rpmostree1/Sysroot"
)

// customOrigin is shown by rpm-ostree in the place of a commit.
type customOrigin struct{ URL, Description string }

// do asks rpm-ostree's daemon over D-Bus for the update, which it makes in one transaction, and returns when that has
// ended. The command line needs several calls for that. The daemon starts from the pending deployment of a stateroot;
// whatever the update does not name stays. What it stages is locked against finalization. show is called with lines about
// the progress. root is the host's root directory.
//
// When ctx ends, the transaction is cancelled, and its end is waited for, but not longer than transactionGrace. If this
// process dies, the transaction continues. The error is an *unsupportedError if the daemon was never asked, or does not
// know the request; nothing has happened then.
//
// The interface is org.projectatomic.rpmostree1 (src/daemon/org.projectatomic.rpmostree1.xml in
// rpm-ostree; what the options do: deploy_transaction_execute in rpmostreed-transaction-types.cxx).
func (u update) do(ctx context.Context, root, stateroot string, show func(line string)) error {
	bus, err := dialBus(ctx, root)
	if err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return &unsupportedError{fmt.Errorf("cannot connect to the system bus: %w", err)}
	}
	// The daemon cancels a transaction if its client leaves the bus before it starts.
	defer bus.Close()
	address, err := u.request(ctx, bus, stateroot)
	if err != nil {
		return err
	}
	conn, err := dialTransaction(ctx, root, address)
	if err != nil {
		return callFailed("connect to rpm-ostree's transaction", err)
	}
	defer leaveTransaction(ctx, bus, conn)
	return followTransaction(ctx, conn, show)
}

// leaveTransaction closes the connection to a transaction. The daemon begins no other one until all clients of
// this one have left, so this waits for an answer that the daemon gives after it has noticed. Without
// an answer, the daemon is busy for the next request, or gone.
func leaveTransaction(ctx context.Context, bus, conn *dbus.Conn) {
	_ = conn.Close() // the daemon may have closed it already
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), transactionGrace)
	defer cancel()
	_ = bus.Object(busName, sysrootPath).CallWithContext(ctx, busName+".Sysroot.Reload", 0).Err
}

// request asks for the transaction and returns its address.
func (u update) request(ctx context.Context, bus *dbus.Conn, stateroot string) (address string, err error) {
	sysroot := bus.Object(busName, sysrootPath)
	client := map[string]dbus.Variant{"id": dbus.MakeVariant("pivot")}
	// The first call starts the daemon, which does not exit while clients are registered.
	if err := sysroot.CallWithContext(ctx, busName+".Sysroot.RegisterClient", 0, client).Err; err != nil {
		return "", callFailed("register with rpm-ostree", err)
	}
	var system dbus.ObjectPath
	if err := sysroot.CallWithContext(ctx, busName+".Sysroot.GetOS", 0, stateroot).Store(&system); err != nil {
		return "", callFailed("find the system "+stateroot, err)
	}
	err = bus.Object(busName, system).CallWithContext(ctx, busName+".OS.UpdateDeployment", 0, u.modifiers(), u.options()).Store(&address)
	return address, callFailed("request a deployment", err)
}

// modifiers returns the first argument of UpdateDeployment.
func (u update) modifiers() map[string]dbus.Variant {
	m := map[string]dbus.Variant{}
	if u.image != nil {
		m["set-refspec"] = dbus.MakeVariant(u.image.base())
	}
	for key, names := range map[string][]string{
		"install-packages": u.install(), "uninstall-packages": namesOf(u.changes, pivot.PackageUninstall),
		"override-remove-packages": namesOf(u.changes, pivot.PackageRemove), "override-reset-packages": namesOf(u.changes, pivot.PackageRestore),
	} {
		if len(names) > 0 {
			m[key] = dbus.MakeVariant(names)
		}
	}
	return m
}

// options returns the second argument of UpdateDeployment, with the values that rpm-ostree's own
// command line uses for a rebase, and for changes of packages.
func (u update) options() map[string]dbus.Variant {
	o := map[string]dbus.Variant{
		"lock-finalization":       dbus.MakeVariant(true),
		"initiating-command-line": dbus.MakeVariant("pivot"),
	}
	if u.image == nil {
		o["no-pull-base"] = dbus.MakeVariant(true)
		o["cache-only"] = dbus.MakeVariant(len(u.install()) == 0)
		return o
	}
	o["allow-downgrade"] = dbus.MakeVariant(true)
	if origin := u.image.customOrigin(); origin != nil {
		o["custom-origin"] = dbus.MakeVariant(*origin)
	}
	return o
}

// unsupportedError is the error if an update cannot be requested over D-Bus on this host.
type unsupportedError struct{ err error }

func (e *unsupportedError) Error() string { return e.err.Error() }
func (e *unsupportedError) Unwrap() error { return e.err }

// errLost is the error if the daemon, or the bus, has ended the connection, as when the daemon has
// crashed. Whether the transaction is finished is unknown then.
var errLost = errors.New("rpm-ostree's daemon has ended the connection")

// callFailed returns the error for a request that has failed, or nil.
func callFailed(what string, err error) error {
	if err == nil {
		return nil
	}
	answer, ok := errors.AsType[dbus.Error](err)
	if !ok {
		if !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
			err = fmt.Errorf("%w: %w", errLost, err)
		}
		return fmt.Errorf("cannot %s: %w", what, err)
	}
	// D-Bus's own errors are known by their names.
	err = fmt.Errorf("cannot %s: %w (%s)", what, answer, answer.Name)
	switch strings.TrimPrefix(answer.Name, "org.freedesktop.DBus.Error.") {
	case "ServiceUnknown", "NameHasNoOwner", "Spawn.ServiceNotFound", // the bus knows no such daemon
		"UnknownMethod", "UnknownInterface", "InvalidArgs", "AccessDenied":
		return &unsupportedError{err}
	}
	return err
}
