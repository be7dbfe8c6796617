package host

import (
	"bufio"
	"os/exec"
	"strings"
	"testing"

	"github.com/godbus/dbus/v5"

	"machine-pivot/internal/fault"
	"machine-pivot/test/tools/need"
)

// logind implements the one method that is used.
type logind struct{ list []inhibitor }

// ListInhibitors implements org.freedesktop.login1.Manager.
func (l logind) ListInhibitors() ([]inhibitor, *dbus.Error) { return l.list, nil }

// TestInhibitors uses a real bus.
func TestInhibitors(t *testing.T) {
	address := startBus(t)
	client := connect(t, address)
	if err := blockedBy(t.Context(), client); err != nil {
		t.Errorf("without logind: %v", err)
	}
	for _, c := range []struct {
		what, mode string
		blocked    bool
	}{
		{"shutdown", "block", true},
		{"sleep:shutdown:idle", "block", true},
		{"shutdown", "block-weak", false},
		{"shutdown", "delay", false},
		{"sleep", "block", false},
	} {
		server := connect(t, address)
		list := []inhibitor{{"idle", "a", "b", "block", 0, 1}, {c.what, "backup", "a backup runs", c.mode, 0, 42}}
		if err := server.Export(logind{list}, "/org/freedesktop/login1", "org.freedesktop.login1.Manager"); err != nil {
			t.Fatal(err)
		}
		if _, err := server.RequestName("org.freedesktop.login1", dbus.NameFlagDoNotQueue); err != nil {
			t.Fatal(err)
		}
		err := blockedBy(t.Context(), client)
		if (err != nil) != c.blocked {
			t.Errorf("%+v: %v", c, err)
		}
		if err != nil && (!fault.KindOf(err).Transient() || !strings.Contains(err.Error(), "backup (process 42): a backup runs") || fault.HintOf(err) == "") {
			t.Errorf("error %v", err)
		}
		if _, err := server.ReleaseName("org.freedesktop.login1"); err != nil {
			t.Fatal(err)
		}
	}
}

// startBus starts a private message bus and returns its address.
func startBus(t *testing.T) string {
	t.Helper()
	need.Program(t, "dbus-daemon")
	cmd := exec.Command("dbus-daemon", "--session", "--nofork", "--print-address")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	address, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(address)
}

func connect(t *testing.T, address string) *dbus.Conn {
	t.Helper()
	conn, err := dbus.Connect(address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}
