package settings

import (
	"strings"
	"testing"
)

// TestFleetLockChecks: which settings are valid.
func TestFleetLockChecks(t *testing.T) {
	for _, c := range []struct {
		text           string
		url, group, id bool
	}{
		{"https://fleetlock.example", true, false, true},
		{"http://[::1]:8080/base/", true, false, true},
		{"ftp://fleetlock.example", false, false, true},
		{"https://user:secret@fleetlock.example", false, false, true},
		{"https://fleetlock.example?a=b", false, false, true},
		{"a.B-9", false, true, true},
		{"a b", false, false, false},
		{"", false, false, false},
	} {
		for what, got := range map[string]error{"url": CheckFleetLockURL(c.text), "group": checkFleetLockGroup(c.text), "id": checkFleetLockID(c.text)} {
			if want := map[string]bool{"url": c.url, "group": c.group, "id": c.id}[what]; (got == nil) != want {
				t.Errorf("%s %q: %v", what, c.text, got)
			}
			if what == "url" && got != nil && strings.Contains(got.Error(), "secret") {
				t.Errorf("a secret is told: %v", got)
			}
		}
	}
}
