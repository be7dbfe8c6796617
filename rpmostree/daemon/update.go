// Package daemon asks rpm-ostree's daemon over D-Bus for a deployment with another image and other
// packages, which the daemon makes in one transaction. The command line needs several for that.
//
// The interface is org.projectatomic.rpmostree1 (src/daemon/org.projectatomic.rpmostree1.xml in
// rpm-ostree; what the options do: deploy_transaction_execute in rpmostreed-transaction-types.cxx).
package daemon

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

// Update is one change of what the next deployment consists of. It starts from the pending
// deployment; whatever is not named here stays.
type Update struct {
	Stateroot string
	Base      string // refspec of another image's commit; "" keeps the base
	// Origin has a URL and a description for status to show; only with Base. nil keeps none.
	Origin *CustomOrigin

	Install, Uninstall []string // packages layered by name
	Remove, Reset      []string // packages of the base: removed, or no longer removed
}

// CustomOrigin is shown by rpm-ostree in the place of a commit.
type CustomOrigin struct{ URL, Description string }

// Do has the daemon make the update, and returns when the transaction has ended. What the daemon
// stages is locked against finalization. Do calls show with lines about the progress. root is the
// host's root directory.
//
// When ctx ends, Do cancels the transaction and waits for its end, but not longer than Grace. If
// this process dies, the transaction continues. The error is an *UnsupportedError if the daemon was
// never asked, or does not know the request; nothing has happened then.
func (u Update) Do(ctx context.Context, root string, show func(line string)) error {
	bus, err := dialBus(ctx, root)
	if err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return &UnsupportedError{fmt.Errorf("cannot connect to the system bus: %w", err)}
	}
	// The daemon cancels a transaction if its client leaves the bus before it starts.
	defer bus.Close()
	address, err := u.request(ctx, bus)
	if err != nil {
		return err
	}
	conn, err := dialTransaction(ctx, root, address)
	if err != nil {
		return failed("connect to rpm-ostree's transaction", err)
	}
	defer leave(ctx, bus, conn)
	return follow(ctx, conn, show)
}

// leave closes the connection to a transaction. The daemon begins no other one until all clients of
// this one have left, so leave waits for an answer that the daemon gives after it has noticed. Without
// an answer, the daemon is busy for the next request, or gone.
func leave(ctx context.Context, bus, conn *dbus.Conn) {
	_ = conn.Close() // the daemon may have closed it already
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), Grace)
	defer cancel()
	_ = bus.Object(busName, sysrootPath).CallWithContext(ctx, busName+".Sysroot.Reload", 0).Err
}

// request asks for the transaction and returns its address.
func (u Update) request(ctx context.Context, bus *dbus.Conn) (address string, err error) {
	sysroot := bus.Object(busName, sysrootPath)
	client := map[string]dbus.Variant{"id": dbus.MakeVariant("pivot")}
	// The first call starts the daemon, which does not exit while clients are registered.
	if err := sysroot.CallWithContext(ctx, busName+".Sysroot.RegisterClient", 0, client).Err; err != nil {
		return "", failed("register with rpm-ostree", err)
	}
	var stateroot dbus.ObjectPath
	if err := sysroot.CallWithContext(ctx, busName+".Sysroot.GetOS", 0, u.Stateroot).Store(&stateroot); err != nil {
		return "", failed("find the system "+u.Stateroot, err)
	}
	err = bus.Object(busName, stateroot).CallWithContext(ctx, busName+".OS.UpdateDeployment", 0, u.modifiers(), u.options()).Store(&address)
	return address, failed("request a deployment", err)
}

// modifiers returns the first argument of UpdateDeployment.
func (u Update) modifiers() map[string]dbus.Variant {
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
func (u Update) options() map[string]dbus.Variant {
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

// UnsupportedError is the error if an update cannot be requested over D-Bus on this host.
type UnsupportedError struct{ err error }

func (e *UnsupportedError) Error() string { return e.err.Error() }
func (e *UnsupportedError) Unwrap() error { return e.err }

// ErrLost is the error if the daemon, or the bus, has ended the connection, as when the daemon has
// crashed. Whether the transaction is finished is unknown then.
var ErrLost = errors.New("rpm-ostree's daemon has ended the connection")

// failed returns the error for a request that has failed, or nil.
func failed(what string, err error) error {
	if err == nil {
		return nil
	}
	answer, ok := errors.AsType[dbus.Error](err)
	if !ok {
		if !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
			err = fmt.Errorf("%w: %w", ErrLost, err)
		}
		return fmt.Errorf("cannot %s: %w", what, err)
	}
	// D-Bus's own errors are known by their names.
	err = fmt.Errorf("cannot %s: %w (%s)", what, answer, answer.Name)
	switch strings.TrimPrefix(answer.Name, "org.freedesktop.DBus.Error.") {
	case "ServiceUnknown", "NameHasNoOwner", "Spawn.ServiceNotFound", // the bus knows no such daemon
		"UnknownMethod", "UnknownInterface", "InvalidArgs", "AccessDenied":
		return &UnsupportedError{err}
	}
	return err
}
