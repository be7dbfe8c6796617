package stories_test

import (
	"slices"
	"strings"
	"testing"

	"machine-pivot/firstboot"
	"machine-pivot/internal/settings"
)

// TestWatchdogNoted (P59): where the new system is entered only once, plan, status and the commit say if
// nothing ends its hang. They do not if a watchdog is armed, or if the new system is entered for good.
func TestWatchdogNoted(t *testing.T) {
	const note = "a new system that hangs stays until somebody cycles the power"
	for name, c := range map[string]struct {
		settings, state string
		says            string // "": nothing about watchdogs
	}{
		"no watchdog":            {"fallback=auto\n", "", "this machine has no hardware watchdog: " + note},
		"one that nobody starts": {"fallback=auto\n", "inactive\n", "RuntimeWatchdogSec=2min): " + note},
		"one that is armed":      {"fallback=auto\n", "active\n", ""},
		"no fallback":            {"", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			h := newGuarded(t)
			h.Write(settings.Path, []byte(c.settings))
			if c.state != "" {
				h.Write("/sys/class/watchdog/watchdog0/state", []byte(c.state))
			}
			b := firstboot.FirstBoot{Machine: h.newMachine(), File: firstboot.EncapsulatedPath}
			plan, err := b.Plan(t.Context())
			must(t, err)
			status, err := h.newMachine().Status(t.Context())
			must(t, err)
			must(t, h.bootGuarded())
			for where, notes := range map[string][]string{"plan": plan.Notes, "status": status.Notes, "the commit": {h.notes}} {
				said := slices.ContainsFunc(notes, func(n string) bool { return strings.Contains(n, note) })
				if said != (c.says != "") || said && !slices.ContainsFunc(notes, func(n string) bool { return strings.Contains(n, c.says) }) {
					t.Errorf("%s says %q, want %q in it", where, notes, c.says)
				}
			}
		})
	}
}
