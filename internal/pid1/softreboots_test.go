package pid1_test

import (
	"errors"
	"testing"

	"github.com/godbus/dbus/v5"

	"machine-pivot/internal/pid1"
	"machine-pivot/test/worlds/hostsystemd"
)

// TestCount tests what systemd answers: with the property, without it, and not at all.
func TestCount(t *testing.T) {
	unknown := dbus.Error{Name: "org.freedesktop.DBus.Error.UnknownProperty"}
	gone := errors.New("gone")
	for _, test := range []struct {
		text string
		err  error
		want uint32
		ok   bool
	}{
		{"@u 0", nil, 0, true},
		{"@u 2", nil, 2, true},
		{"7", nil, 7, true},
		{"@u 4294967295", nil, 1<<32 - 1, true},
		{"", unknown, 0, true},
		{"", dbus.Error{Name: "org.freedesktop.DBus.Error.NoReply"}, 0, false},
		{"", gone, 0, false},
		{"@u -1", nil, 0, false},
		{"@u 4294967296", nil, 0, false},
		{"", nil, 0, false},
	} {
		got, err := pid1.SoftReboots(func(name string) (string, error) {
			if name != "SoftRebootsCount" {
				t.Errorf("asked for %s", name)
			}
			return test.text, test.err
		})
		if got != test.want || (err == nil) != test.ok {
			t.Errorf("%q, %v: %d, %v", test.text, test.err, got, err)
		}
	}
}

// TestOf tests it with the testing machine's systemd, which has had no soft reboot, and without any.
func TestOf(t *testing.T) {
	if testing.Short() {
		t.Skip("starts systemd")
	}
	if !hostsystemd.Inside(t) {
		return
	}
	if n, err := pid1.SoftRebootsOf(t.Context(), "/"); err != nil || n != 0 {
		t.Errorf("%d, %v", n, err)
	}
	if n, err := pid1.SoftRebootsOf(t.Context(), t.TempDir()); err != nil || n != 0 {
		t.Errorf("without systemd: %d, %v", n, err)
	}
}
