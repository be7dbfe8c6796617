package rpmostree

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/godbus/dbus/v5"
)

const (
	busName     = "org.projectatomic.rpmostree1"
	sysrootPath = "/org/projectatomic/rpmostree1/Sysroot"
)

// daemonUpdate asks rpm-ostree's daemon over D-Bus to change what the next deployment consists of, in one
// transaction. The command line needs several for that. It starts from the pending deployment; whatever is
// not named here stays.
//
// The interface is org.projectatomic.rpmostree1 (src/daemon/org.projectatomic.rpmostree1.xml in
// rpm-ostree; what the options do: deploy_transaction_execute in rpmostreed-transaction-types.cxx).
type daemonUpdate struct {
	Stateroot string
	Base      string // refspec of another image's commit; "" keeps the base
	// Origin has a URL and a description for status to show; only with Base. nil keeps none.
	Origin *customOrigin

	Install, Uninstall []string // packages layered by name
	Remove, Reset      []string // packages of the base: removed, or no longer removed
}

// customOrigin is shown by rpm-ostree in the place of a commit.
type customOrigin struct{ URL, Description string }

// do has the daemon make the update, and returns when the transaction has ended. What the daemon
// stages is locked against finalization. It calls show with lines about the progress. root is the
// host's root directory.
//
// When ctx ends, it cancels the transaction and waits for its end, but not longer than transactionGrace. If
// this process dies, the transaction continues. The error is an *unsupportedError if the daemon was
// never asked, or does not know the request; nothing has happened then.
func (u daemonUpdate) do(ctx context.Context, root string, show func(line string)) error {
	bus, err := dialBus(ctx, root)
	if err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return &unsupportedError{fmt.Errorf("cannot connect to the system bus: %w", err)}
	}
	// The daemon cancels a transaction if its client leaves the bus before it starts.
	defer bus.Close()
	address, err := u.request(ctx, bus)
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
func (u daemonUpdate) request(ctx context.Context, bus *dbus.Conn) (address string, err error) {
	sysroot := bus.Object(busName, sysrootPath)
	client := map[string]dbus.Variant{"id": dbus.MakeVariant("pivot")}
	// The first call starts the daemon, which does not exit while clients are registered.
	if err := sysroot.CallWithContext(ctx, busName+".Sysroot.RegisterClient", 0, client).Err; err != nil {
		return "", callFailed("register with rpm-ostree", err)
	}
	var stateroot dbus.ObjectPath
	if err := sysroot.CallWithContext(ctx, busName+".Sysroot.GetOS", 0, u.Stateroot).Store(&stateroot); err != nil {
		return "", callFailed("find the system "+u.Stateroot, err)
	}
	err = bus.Object(busName, stateroot).CallWithContext(ctx, busName+".OS.UpdateDeployment", 0, u.modifiers(), u.options()).Store(&address)
	return address, callFailed("request a deployment", err)
}

// modifiers returns the first argument of UpdateDeployment.
func (u daemonUpdate) modifiers() map[string]dbus.Variant {
	m := map[string]dbus.Variant{}
	if u.Base != "" {
		m["set-refspec"] = dbus.MakeVariant(u.Base)
	}
	for key, names := range map[string][]string{
		"install-packages": u.Install, "uninstall-packages": u.Uninstall,
		"override-remove-packages": u.Remove, "override-reset-packages": u.Reset,
	} {
		if len(names) > 0 {
			m[key] = dbus.MakeVariant(names)
		}
	}
	return m
}

// options returns the second argument of UpdateDeployment, with the values that rpm-ostree's own
// command line uses for a rebase, and for changes of packages.
func (u daemonUpdate) options() map[string]dbus.Variant {
	o := map[string]dbus.Variant{
		"lock-finalization":       dbus.MakeVariant(true),
		"initiating-command-line": dbus.MakeVariant("pivot"),
	}
	if u.Base != "" {
		o["allow-downgrade"] = dbus.MakeVariant(true)
	} else {
		o["no-pull-base"] = dbus.MakeVariant(true)
		o["cache-only"] = dbus.MakeVariant(len(u.Install) == 0)
	}
	if u.Origin != nil {
		o["custom-origin"] = dbus.MakeVariant(*u.Origin)
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
