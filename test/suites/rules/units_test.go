package rules

import (
	"path"
	"slices"
	"strings"
	"testing"

	systemdunits "machine-pivot/systemd-units"
)

// TestOwnUnits: the units that count as pivot's own are those in the directory and of the preset, and the pages that
// list them have all.
func TestOwnUnits(t *testing.T) {
	own := slices.Sorted(slices.Values(systemdunits.Own()))
	var files []string
	preset := []string{systemdunits.Upgrade} // its timer starts it
	for _, file := range slices.Concat(matches(t, "systemd-units/*.service"), matches(t, "systemd-units/*.path"), matches(t, "systemd-units/*.timer")) {
		files = append(files, path.Base(file))
	}
	for line := range strings.Lines(readText(t, "systemd-units/80-pivot.preset")) {
		if _, unit, ok := strings.Cut(strings.TrimSpace(line), "able "); ok {
			preset = append(preset, unit)
		}
	}
	slices.Sort(files)
	slices.Sort(preset)
	if !slices.Equal(own, files) || !slices.Equal(own, preset) {
		t.Errorf("pivot's own units are %q, the files %q, those of the preset %q", own, files, preset)
	}
	enabled := slices.DeleteFunc(slices.Clone(own), func(unit string) bool {
		return unit == systemdunits.Upgrade || unit == systemdunits.UpgradeTimer
	})
	for page, units := range map[string][]string{"docs/settings.md": own, "docs/recipes/image.md": enabled, "docs/recipes/kickstart.md": enabled} {
		text := readText(t, page)
		for _, unit := range units {
			if !strings.Contains(text, unit) {
				t.Errorf("%s has no %s", page, unit)
			}
		}
	}
}
