package host_test

import (
	"reflect"
	"testing"

	"machine-pivot/internal/settings"
)

// TestSettings: a machine's settings are those of its files and of its kernel command line, which wins. Without one they
// are unknown: the mode may be "off".
func TestSettings(t *testing.T) {
	want := settings.Default()
	want.Mode, want.RebootMethod = settings.ModeOff, settings.RebootKexec
	h := machine(t, map[string]string{"/proc/cmdline": "quiet pivot.mode=off\n", settings.Path: "mode=system\nreboot-method=kexec\n"})
	if got, err := h.Settings(); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v; want %+v", got, err, want)
	}
	if _, err := machine(t, nil).Settings(); err == nil {
		t.Error("settings without a kernel command line")
	}
}
