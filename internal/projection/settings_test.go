package projection_test

import (
	"slices"
	"testing"

	"machine-pivot/day2"
	"machine-pivot/internal/disruption"
	"machine-pivot/internal/machineconfig"
	"machine-pivot/internal/osimage/imageref"
	"machine-pivot/internal/pods"
	"machine-pivot/internal/projection"
	"machine-pivot/internal/settings"
	"machine-pivot/kargs"
)

// TestSettings: the files that administrators write can be entries, what pivot keeps cannot.
func TestSettings(t *testing.T) {
	settings := []string{settings.Path, disruption.RulesPath, kargs.PolicyPath, imageref.PullspecPath, kargs.LegacyPath, pods.SourceDir}
	for _, path := range settings {
		if _, err := projection.Canonical(path); err != nil || !slices.Contains(projection.Settings(), path) {
			t.Errorf("%s: %v", path, err)
		}
	}
	for _, path := range []string{projection.OwnDir, machineconfig.RecordPath, machineconfig.LeftOutPath, day2.LiveJournalPath, pods.RecordPath, projection.ManifestPath, "/etc/pivot/x", "/var/lib/pivot"} {
		if _, err := projection.Canonical(path); err == nil {
			t.Errorf("%s can be an entry", path)
		}
	}
}
