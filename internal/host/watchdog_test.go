package host_test

import (
	"strings"
	"testing"

	"machine-pivot/internal/host"
)

// TestWatchdogState (P59): only a hardware watchdog that a program has started counts as armed, and a note appears only
// where none is.
func TestWatchdogState(t *testing.T) {
	const first, second = "/sys/class/watchdog/watchdog0/", "/sys/class/watchdog/watchdog1/"
	for name, c := range map[string]struct {
		files map[string]string
		want  host.Watchdog
		says  string
	}{
		"no driver":              {nil, host.WatchdogNone, "no hardware watchdog"},
		"no device":              {map[string]string{"/sys/class/watchdog/": ""}, host.WatchdogNone, "no hardware watchdog"},
		"armed":                  {map[string]string{first + "identity": "i6300ESB timer\n", first + "state": "active\n"}, host.WatchdogArmed, ""},
		"not armed":              {map[string]string{first + "identity": "i6300ESB timer\n", first + "state": "inactive\n"}, host.WatchdogIdle, "RuntimeWatchdogSec"},
		"the second one armed":   {map[string]string{first + "state": "inactive\n", second + "state": "active\n"}, host.WatchdogArmed, ""},
		"one in software":        {map[string]string{first + "identity": "Software Watchdog\n", first + "state": "active\n"}, host.WatchdogNone, "no hardware watchdog"},
		"a kernel without sysfs": {map[string]string{first + "dev": "10:130\n"}, host.WatchdogUnknown, ""},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := machine(t, c.files).Watchdog()
			if err != nil || got != c.want {
				t.Errorf("%s, %v, want %s", got, err, c.want)
			}
			if says := got.Lacking(); c.says == "" && says != "" || !strings.Contains(says, c.says) {
				t.Errorf("it says %q, want %q", says, c.says)
			}
		})
	}
}
