package rpmostree_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/godbus/dbus/v5"

	"machine-pivot/test/worlds/rpmostree"
)

// The tests of the daemon name the sources that define the behaviour: "os" is
// src/daemon/rpmostreed-os.cxx, "sysroot" rpmostreed-sysroot.cxx, "transaction"
// rpmostreed-transaction.cxx.

const (
	sysrootInterface     = "org.projectatomic.rpmostree1.Sysroot."
	transactionInterface = "org.projectatomic.rpmostree1.Transaction."
)

// dial connects to a socket of the host.
func (w *world) dial(path string) *dbus.Conn {
	w.t.Helper()
	dir, err := os.Open(w.Path(path[:strings.LastIndex(path, "/")]))
	if err != nil {
		w.t.Fatal(err)
	}
	defer dir.Close()
	conn, err := dbus.Dial(fmt.Sprintf("unix:path=/proc/self/fd/%d%s", dir.Fd(), path[strings.LastIndex(path, "/"):]))
	if err == nil {
		err = conn.Auth([]dbus.Auth{dbus.AuthExternal("0")})
	}
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// client is a registered client on the message bus.
func (w *world) client() dbus.BusObject { return w.register(w.dial("/run/dbus/system_bus_socket")) }

func (w *world) register(bus *dbus.Conn) dbus.BusObject {
	w.t.Helper()
	err := bus.Hello()
	if err == nil {
		err = bus.Object("org.projectatomic.rpmostree1", "/org/projectatomic/rpmostree1/Sysroot").
			Call(sysrootInterface+"RegisterClient", 0, map[string]dbus.Variant{"id": dbus.MakeVariant("test")}).Err
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return bus.Object("org.projectatomic.rpmostree1", "/org/projectatomic/rpmostree1/os")
}

type dict = map[string]dbus.Variant

// values returns a dictionary of keys and values.
func values(pairs ...any) dict {
	d := dict{}
	for pair := range slices.Chunk(pairs, 2) {
		d[pair[0].(string)] = dbus.MakeVariant(pair[1])
	}
	return d
}

func update(client dbus.BusObject, modifiers, options dict) (address string, err error) {
	err = client.Call("org.projectatomic.rpmostree1.OS.UpdateDeployment", 0, modifiers, options).Store(&address)
	return address, err
}

// start starts or joins the transaction, and returns whether it started it, and its result. The
// transaction is over when all clients have left.
func (w *world) start() (started bool, result []any, leave func()) {
	w.t.Helper()
	peer := w.dial("/run/rpm-ostree-transaction.sock")
	signals := make(chan *dbus.Signal, 100)
	peer.Signal(signals)
	if err := peer.Object("org.projectatomic.rpmostree1", "/").Call(transactionInterface+"Start", 0).Store(&started); err != nil {
		w.t.Fatal(err)
	}
	for s := range signals {
		if s.Name == transactionInterface+"Finished" {
			return started, s.Body, func() { _ = peer.Close() }
		}
	}
	w.t.Fatal("the transaction has no result")
	return false, nil, nil
}

// TestUpdateDeployment: one request changes base, custom origin and packages, and locks what it
// stages. Another client with the same request joins, and is told the result again (sysroot:
// rpmostreed_sysroot_prep_for_txn; transaction: finished_params); a different request is refused while
// a client of the first is connected.
func TestUpdateDeployment(t *testing.T) {
	w := newWorld(t, rpmostree.Control{})
	w.repository("gpgcheck=0\n", "rt", "extra")
	w.does("override", "remove", "kernel-core", "--install=rt")
	base := w.PullCommit()
	modifiers := values("set-refspec", ":"+base, "install-packages", []string{"extra"}, "uninstall-packages", []string{"rt"}, "override-reset-packages", []string{"kernel-core"})
	options := values("lock-finalization", true, "custom-origin", struct{ A, B string }{"pivot://x", "Managed"}, "initiating-command-line", "test it")
	first, second := w.client(), w.client()
	address, err := update(first, modifiers, options)
	if err != nil || address != "unix:path=/run/rpm-ostree-transaction.sock" {
		t.Fatal(address, err)
	}
	if got := fmt.Sprint(w.status()["transaction"]); !strings.HasPrefix(got, "[test it ") {
		t.Errorf("transaction %s", got)
	}
	started, result, _ := w.start()
	if !started || fmt.Sprint(result) != "[true ]" {
		t.Errorf("started %v, result %v", started, result)
	}
	if again, err := update(second, modifiers, options); err != nil || again != address {
		t.Errorf("joined %s, %v", again, err)
	}
	if started, result, _ := w.start(); started || fmt.Sprint(result) != "[true ]" {
		t.Errorf("started %v, result %v", started, result)
	}
	if _, err := update(second, values("set-refspec", ":"+base), options); err == nil || !strings.Contains(err.Error(), "Transaction in progress: test it\n") {
		t.Errorf("error %v", err)
	}
	d := w.deployments()[0]
	if got := fmt.Sprint(d["base-checksum"] == base, d["requested-packages"], d["requested-base-removals"], d["custom-origin"]); got != "true [extra] <nil> [pivot://x Managed]" {
		t.Errorf("staged %s", got)
	}
	if inState, file := w.lock(); !inState && !file {
		t.Error("it is not locked")
	}
	if assembled, err := rpmostree.Assemblies(w.Root); err != nil || len(assembled) != 2 {
		t.Errorf("assembled %q, %v", assembled, err)
	}
}

// TestUpdateDeploymentRefused: options that contradict each other, package files without their descriptors (types:
// deploy_transaction_execute), names compared with the old base, and a method that an old daemon lacks.
func TestUpdateDeploymentRefused(t *testing.T) {
	w := newWorld(t, rpmostree.Control{})
	w.repository("gpgcheck=0\n", "rt")
	base := w.PullCommit()
	client := w.client()
	for _, c := range []struct {
		modifiers dict
		want      string
	}{
		{values("set-refspec", ":"+base, "no-pull-base", true), "Can't specify no-pull-base"},
		{values("set-refspec", ":"+base, "install-local-packages", []uint32{0}), "Expected 1 fds but received 0"},
	} {
		if _, err := update(client, c.modifiers, c.modifiers); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("error %v, want %s", err, c.want)
		}
	}
	for want, modifiers := range map[string]dict{
		`"kernel-core" is already provided by: `: values("set-refspec", ":"+base, "install-packages", []string{"kernel-core"}),
		`Package "other" not found`:              values("set-refspec", ":"+base, "override-remove-packages", []string{"other"}),
	} {
		client := w.client()
		if _, err := update(client, modifiers, values()); err != nil {
			t.Fatal(err)
		}
		_, result, leave := w.start()
		if !strings.Contains(fmt.Sprint(result), want) {
			t.Errorf("result %v, want %s", result, want)
		}
		leave()
		if err := client.Call(sysrootInterface+"Reload", 0).Err; err != nil { // the daemon has noticed
			t.Fatal(err)
		}
	}
	w = newWorld(t, rpmostree.Control{NoUpdate: true})
	_, err := update(w.client(), values(), values())
	if failure, ok := err.(dbus.Error); !ok || failure.Name != "org.freedesktop.DBus.Error.UnknownMethod" {
		t.Errorf("error %v", err)
	}
}

// TestUpdateDeploymentUnstarted: a transaction is dropped if its client leaves before it starts (transaction:
// transaction_owner_vanished_cb). A cancelled one fails, and stages nothing.
func TestUpdateDeploymentUnstarted(t *testing.T) {
	w := newWorld(t, rpmostree.Control{Faults: []rpmostree.Fault{{Verb: "UpdateDeployment", At: "locked", Do: "hang"}}})
	modifiers := values("set-refspec", ":"+w.PullCommit())
	bus := w.dial("/run/dbus/system_bus_socket")
	client := w.register(bus)
	if _, err := update(client, modifiers, values("lock-finalization", true)); err != nil {
		t.Fatal(err)
	}
	_ = bus.Close()
	client = w.client()
	for { // until the daemon has noticed
		_, err := update(client, modifiers, values())
		if err == nil {
			break
		}
		if !strings.Contains(err.Error(), "Transaction in progress") || t.Context().Err() != nil {
			t.Fatal(err)
		}
	}
	peer := w.dial("/run/rpm-ostree-transaction.sock").Object("org.projectatomic.rpmostree1", "/")
	go func() { _ = peer.Call(transactionInterface+"Cancel", 0).Err }()
	if started, result, _ := w.start(); !started || fmt.Sprint(result) != "[false Operation was cancelled]" {
		t.Errorf("started %v, result %v", started, result)
	}
	if staged, err := w.Sysroot().Staged(); err != nil || staged != nil {
		t.Errorf("staged %+v, %v", staged, err)
	}
}
