package rpmostree

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"

	"github.com/godbus/dbus/v5"

	"machine-pivot/test/worlds/buspeer"
)

// transactionSocket is where the daemon serves its only transaction since release 2023.2 (commit
// 476afb1d). Earlier ones use an abstract socket with a random name.
const transactionSocket = "run/rpm-ostree-transaction.sock"

// transaction is one UpdateDeployment. The daemon's mutex protects it.
type transaction struct {
	daemon  *Daemon
	owner   *buspeer.Conn // the client on the message bus
	key     string        // arguments, to recognize the same request
	title   string
	update  update
	server  *buspeer.Server
	address string
	output  lineWriter
	call    *call
	ctx     context.Context
	cancel  context.CancelFunc

	started  bool
	finished []any // the parameters of the signal; nil before
}

// listen opens the transaction's socket.
func (t *transaction) listen() (net.Listener, error) {
	if t.call.control.release().since(release{2023, 2}) {
		t.address = "unix:path=/" + transactionSocket
		return listen(t.daemon.standin.Root, transactionSocket)
	}
	name := fmt.Sprintf("/tmp/rpm-ostree/dbus-%x", rand.Uint64())
	t.address = "unix:abstract=" + name
	return net.Listen("unix", "@"+name)
}

// answer answers calls on the transaction's socket.
func (t *transaction) answer(call buspeer.Call) ([]any, error) {
	t.daemon.mu.Lock()
	defer t.daemon.mu.Unlock()
	switch strings.TrimPrefix(call.Method, busName+".Transaction.") {
	case "Start":
		first := !t.started
		t.started = true
		if first {
			go t.run()
		} else if t.finished != nil {
			t.emit("Finished", t.finished...)
		}
		return []any{first}, nil
	case "Cancel":
		t.cancel()
		return nil, nil
	}
	return nil, buspeer.UnknownMethod(call.Method)
}

func (t *transaction) emit(name string, body ...any) {
	t.server.Emit("/", busName+".Transaction", name, body...)
}

// run executes the transaction and emits its result.
func (t *transaction) run() {
	err := t.execute()
	t.daemon.mu.Lock()
	defer t.daemon.mu.Unlock()
	if errors.Is(err, ErrDied) { // of the daemon, which the bus starts again for the next call
		t.daemon.bus.Drop()
		_ = t.close()
		return
	}
	message := ""
	switch {
	case t.ctx.Err() != nil && err != nil:
		message = "Operation was cancelled"
	case err != nil:
		message = err.Error()
	}
	t.finished = []any{err == nil, message}
	t.emit("Finished", t.finished...)
	t.maybeClose()
}

func (t *transaction) execute() error {
	if err := t.call.fault("start"); err != nil {
		return err
	}
	t.emit("TaskBegin", "Resolving dependencies")
	t.emit("TaskEnd", "done")
	if err := t.call.update(t.update); err != nil {
		return err
	}
	return t.call.fault("end")
}

// left is called when a client has left.
func (t *transaction) left() {
	t.daemon.mu.Lock()
	defer t.daemon.mu.Unlock()
	t.maybeClose()
}

// maybeClose ends the transaction if it is finished and all clients have left.
func (t *transaction) maybeClose() {
	if t.finished != nil && t.server.Clients() == 0 {
		_ = t.close()
	}
}

// close ends the transaction. Its work is cancelled if it still runs.
func (t *transaction) close() error {
	t.cancel()
	if t.daemon.current == t {
		t.daemon.current = nil
	}
	return t.server.Close()
}

// arguments returns the arguments of UpdateDeployment as an update, and the options for what it
// stages. The daemon ignores keys that it does not know.
func arguments(args []any) (what update, o options, err error) {
	modifiers, _ := args[0].(map[string]dbus.Variant)
	settings, _ := args[1].(map[string]dbus.Variant)
	on := func(key string) bool { on, _ := settings[key].Value().(bool); return on }
	names := func(key string) []string { names, _ := modifiers[key].Value().([]string); return names }
	what = update{
		install: names("install-packages"), uninstall: names("uninstall-packages"),
		remove: names("override-remove-packages"), reset: names("override-reset-packages"), cached: on("cache-only"),
	}
	what.refspec, _ = modifiers["set-refspec"].Value().(string)
	if custom, ok := settings["custom-origin"].Value().([]any); ok && len(custom) == 2 {
		what.url, _ = custom[0].(string)
		what.description, _ = custom[1].(string)
	}
	switch {
	case what.refspec != "" && on("no-pull-base"):
		return what, o, failf("Can't specify no-pull-base if setting a new refspec or revision")
	case what.refspec == "" && !on("no-pull-base"):
		return what, o, failf("the stand-in upgrades nothing")
	}
	for _, key := range []string{"install-local-packages", "override-replace-local-packages"} {
		if _, given := modifiers[key]; given {
			return what, o, failf("Expected 1 fds but received 0")
		}
	}
	if on("lock-finalization") {
		o.given = append(o.given, [2]string{"lock-finalization", ""})
	}
	title, _ := settings["initiating-command-line"].Value().(string)
	o.given = append(o.given, [2]string{"initiating-command-line", title})
	return what, o, nil
}

// words returns the modifiers, for the record of calls.
func (u update) words() (words []string) {
	if u.refspec != "" {
		words = append(words, "set-refspec="+u.refspec)
	}
	words = append(words, prefixed("install=", u.install)...)
	words = append(words, prefixed("uninstall=", u.uninstall)...)
	words = append(words, prefixed("remove=", u.remove)...)
	return append(words, prefixed("reset=", u.reset)...)
}

// lineWriter calls line with each line that is written.
type lineWriter struct {
	line func(string)
	rest string
}

func (w *lineWriter) Write(data []byte) (int, error) {
	w.rest += string(data)
	for {
		line, rest, ok := strings.Cut(w.rest, "\n")
		if !ok {
			return len(data), nil
		}
		w.rest = rest
		w.line(line)
	}
}
