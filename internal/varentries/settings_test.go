package varentries_test

import (
	"slices"
	"testing"

	"machine-pivot/firstboot"
	"machine-pivot/internal/disruption"
	"machine-pivot/internal/encapsulated"
	"machine-pivot/internal/host"
	"machine-pivot/internal/live"
	"machine-pivot/internal/varentries"
	"machine-pivot/kargs"
)

// TestSettings (D71): the files that administrators write can be entries, what pivot keeps cannot.
func TestSettings(t *testing.T) {
	settings := []string{host.SettingsPath, disruption.RulesPath, kargs.PolicyPath, firstboot.PullspecPath, firstboot.KernelArgsPath}
	for _, path := range settings {
		if _, err := varentries.Canonical(path); err != nil || !slices.Contains(varentries.Settings(), path) {
			t.Errorf("%s: %v", path, err)
		}
	}
	for _, path := range []string{varentries.OwnDir, encapsulated.RecordPath, encapsulated.LeftOutPath, live.JournalPath, varentries.ManifestPath, "/etc/pivot/x", "/var/lib/pivot"} {
		if _, err := varentries.Canonical(path); err == nil {
			t.Errorf("%s can be an entry", path)
		}
	}
}
