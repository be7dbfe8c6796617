package rpmostree

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/godbus/dbus/v5"

	"machine-pivot/test/worlds/buspeer"
)

// The names of the interface (src/daemon/org.projectatomic.rpmostree1.xml).
const (
	busName     = "org.projectatomic.rpmostree1"
	objects     = "/org/projectatomic/rpmostree1/"
	failedError = "org.projectatomic.rpmostreed.Error.Failed"
	busyError   = "org.gtk.GDBus.UnmappedGError.Quark._g_2dio_2derror_2dquark.Code26" // G_IO_ERROR_BUSY
)

// Daemon is rpm-ostree's daemon at its D-Bus interface, with a message bus that has no other services. It has only
// UpdateDeployment, and what a client of that needs: a transaction on its own socket, which runs when a client starts
// it. Clients that request the same join it; it tells its progress and result, and can be cancelled.
type Daemon struct {
	standin Standin
	bus     *buspeer.Server // nil if the control file wants none

	mu      sync.Mutex
	clients map[*buspeer.Conn]bool // registered
	names   int                    // unique names given
	current *transaction
}

// StartDaemon starts the daemon of the host, on the socket of the host's message bus.
func (s *Standin) StartDaemon() (*Daemon, error) {
	d := &Daemon{standin: *s, clients: map[*buspeer.Conn]bool{}}
	d.standin.Daemon = d
	control, err := loadControl(s.Root)
	if err != nil || control.NoBus {
		return d, err
	}
	listener, err := listen(s.Root, "run/dbus/system_bus_socket")
	if err != nil {
		return nil, err
	}
	d.bus = &buspeer.Server{Answer: d.answer, Left: d.left}
	d.bus.Start(listener)
	return d, nil
}

// Close ends the daemon and its transaction.
func (d *Daemon) Close() error {
	if d.bus == nil {
		return nil
	}
	err := d.bus.Close()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.current != nil {
		err = errors.Join(err, d.current.close())
	}
	return err
}

// listen listens on a socket below root, at a path that may be longer than a socket's address.
func listen(root, path string) (net.Listener, error) {
	name := filepath.Join(root, path)
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return nil, err
	}
	if err := os.RemoveAll(name); err != nil {
		return nil, err
	}
	dir, err := os.Open(filepath.Dir(name))
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), filepath.Base(name)), Net: "unix"})
	if err == nil {
		listener.SetUnlinkOnClose(false) // the descriptor is closed by then
	}
	return listener, err
}

// unknownService is the message bus's error for a name that no service has, and that it cannot start.
func unknownService(name string) error {
	return *dbus.NewError("org.freedesktop.DBus.Error.ServiceUnknown", []any{"The name " + name + " was not provided by any .service files"})
}

// answer answers calls on the message bus.
func (d *Daemon) answer(call buspeer.Call) ([]any, error) {
	control, err := loadControl(d.standin.Root)
	if err != nil {
		return nil, err
	}
	if control.NoDaemon && call.Destination == busName {
		return nil, unknownService(call.Destination)
	}
	if call.Method == busName+".Sysroot.Reload" {
		d.reload()
		return nil, nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if call.Destination != busName && call.Destination != "org.freedesktop.DBus" {
		return nil, unknownService(call.Destination)
	}
	switch method, _ := strings.CutPrefix(call.Method, busName+"."); method {
	case "org.freedesktop.DBus.Hello":
		d.names++
		return []any{fmt.Sprintf(":1.%d", d.names)}, nil
	case "Sysroot.RegisterClient":
		d.clients[call.From] = true
		return nil, nil
	case "Sysroot.GetOS":
		name, _ := call.Args[0].(string)
		if _, err := os.Stat(filepath.Join(d.standin.Root, "sysroot/ostree/deploy", name)); err != nil || name == "" {
			return nil, *dbus.NewError(failedError, []any{fmt.Sprintf("OS name %q not found", name)})
		}
		return []any{dbus.ObjectPath(objects + strings.ReplaceAll(name, "-", "_"))}, nil
	case "OS.UpdateDeployment":
		return d.updateDeployment(call)
	}
	return nil, buspeer.UnknownMethod(call.Method)
}

// updateDeployment returns the address of a transaction, a new one or the same that another client
// has requested (rpmostreed-os.cxx, rpmostreed-sysroot.cxx).
func (d *Daemon) updateDeployment(request buspeer.Call) ([]any, error) {
	control, err := loadControl(d.standin.Root)
	if err != nil {
		return nil, err
	}
	if control.NoUpdate {
		return nil, buspeer.UnknownMethod(request.Method)
	}
	if !d.clients[request.From] { // the real one may end itself meanwhile
		return nil, *dbus.NewError(failedError, []any{"the client is not registered"})
	}
	key := fmt.Sprint(request.Args...)
	if d.current != nil {
		if d.current.key == key {
			return []any{d.current.address}, nil
		}
		return nil, *dbus.NewError(busyError, []any{busy(d.current.title).Error()})
	}
	what, options, err := arguments(request.Args)
	if err != nil {
		return nil, *dbus.NewError(failedError, []any{err.Error()})
	}
	if err := control.count(slices.Concat([]string{"UpdateDeployment"}, what.words())); err != nil {
		return nil, err
	}
	t := &transaction{daemon: d, owner: request.From, key: key, update: what, title: options.value("initiating-command-line")}
	t.ctx, t.cancel = context.WithCancel(context.Background())
	t.call = &call{Standin: &d.standin, ctx: t.ctx, control: control, options: options, stdout: &t.output}
	t.output.line = func(line string) { t.emit("Message", line) }
	if err := t.call.begin(); err != nil {
		return nil, *dbus.NewError(busyError, []any{err.Error()})
	}
	listener, err := t.listen()
	if err != nil {
		return nil, err
	}
	t.server = &buspeer.Server{Answer: t.answer, Left: func(*buspeer.Conn) { t.left() }}
	t.server.Start(listener)
	d.current = t
	return []any{t.address}, nil
}

// left forgets a client. A transaction that its client has not started ends with it.
func (d *Daemon) left(c *buspeer.Conn) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.clients, c)
	if t := d.current; t != nil && t.owner == c && !t.started {
		_ = t.close()
	}
}

// reload returns when the daemon has noticed that the clients of a finished transaction have left.
func (d *Daemon) reload() {
	for tries := 0; tries < 1000; tries++ {
		d.mu.Lock()
		finished := d.current != nil && d.current.finished != nil
		d.mu.Unlock()
		if !finished {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// transaction returns what status shows: method, client and path.
func (d *Daemon) transaction() []string {
	if d == nil {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.current == nil {
		return nil
	}
	return []string{d.current.title, ":1.2", objects + "os"}
}
