package host

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"

	"machine-pivot/internal/fault"
	"machine-pivot/test/worlds/buspeer"
)

// listen returns a socket.
func listen(t *testing.T) (string, net.Listener) {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "private")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	return socket, listener
}

// TestStoppedByTheReboot: systemd stops this program for the reboot that it has asked for, before it answers.
func TestStoppedByTheReboot(t *testing.T) {
	socket, listener := listen(t)
	ctx, stop := context.WithCancelCause(t.Context())
	(&buspeer.Server{Answer: func(c buspeer.Call) ([]any, error) {
		if c.Method == "org.freedesktop.DBus.AddMatch" {
			return nil, nil
		}
		stop(errors.New("terminated"))
		time.Sleep(100 * time.Millisecond) // for a caller that would give up now
		return []any{dbus.ObjectPath("/org/freedesktop/systemd1/job/1")}, nil
	}}).Start(listener)
	if err := (bus{socket, time.Minute}).startTarget(ctx, "reboot.target"); err != nil {
		t.Error(err)
	}
}

// TestStartTarget: a target is started as systemctl does. A systemd that answers neither a new connection nor the call
// is a failure that is tried again. The end of the caller's context is none of systemd's.
func TestStartTarget(t *testing.T) {
	const limit = 300 * time.Millisecond
	calls := make(chan buspeer.Call, 1)
	socket, listener := listen(t)
	server := &buspeer.Server{Answer: func(c buspeer.Call) ([]any, error) {
		if c.Method == "org.freedesktop.DBus.AddMatch" { // by which go-systemd is told of jobs that end
			return nil, nil
		}
		calls <- c
		return []any{dbus.ObjectPath("/org/freedesktop/systemd1/job/1")}, nil
	}}
	server.Start(listener)
	if err := (bus{socket, time.Minute}).startTarget(t.Context(), "reboot.target"); err != nil {
		t.Fatal(err)
	}
	if c := <-calls; c.Method != "org.freedesktop.systemd1.Manager.StartUnit" || len(c.Args) != 2 || c.Args[0] != "reboot.target" || c.Args[1] != "replace-irreversibly" {
		t.Errorf("called %s %v", c.Method, c.Args)
	}

	deaf, _ := listen(t) // the kernel accepts the connection
	dumb, listener := listen(t)
	never := make(chan struct{})
	t.Cleanup(func() { close(never) })
	(&buspeer.Server{Answer: func(buspeer.Call) ([]any, error) { <-never; return nil, nil }}).Start(listener)
	for name, socket := range map[string]string{"no answer on a new connection": deaf, "no answer to the call": dumb} {
		err := bus{socket, limit}.startTarget(t.Context(), "reboot.target")
		if fault.KindOf(err) != fault.Unavailable {
			t.Errorf("%s: %v", name, err)
		}
	}
	stopped := errors.New("stopped")
	ctx, stop := context.WithCancelCause(t.Context())
	time.AfterFunc(limit/3, func() { stop(stopped) })
	if err := (bus{deaf, time.Minute}).startTarget(ctx, "reboot.target"); !errors.Is(err, stopped) {
		t.Errorf("no answer on a new connection, and then the program is stopped: %v", err)
	}

	gone, listener := listen(t)
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	if err := (bus{gone, limit}).startTarget(t.Context(), "reboot.target"); err == nil || fault.KindOf(err).Transient() {
		t.Errorf("without systemd: %v", err)
	}
}
