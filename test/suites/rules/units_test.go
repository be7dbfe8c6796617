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
	var files, preset []string
	for _, file := range slices.Concat(matches(t, "systemd-units/*.service"), matches(t, "systemd-units/*.path")) {
		files = append(files, path.Base(file))
	}
	for line := range strings.Lines(readText(t, "systemd-units/80-pivot.preset")) {
		if unit, ok := strings.CutPrefix(strings.TrimSpace(line), "enable "); ok {
			preset = append(preset, unit)
		}
	}
	slices.Sort(files)
	slices.Sort(preset)
	if !slices.Equal(own, files) || !slices.Equal(own, preset) {
		t.Errorf("pivot's own units are %q, the files %q, those of the preset %q", own, files, preset)
	}
	for _, page := range []string{"docs/settings.md", "docs/recipes/image.md", "docs/recipes/kickstart.md"} {
		text := readText(t, page)
		for _, unit := range own {
			if !strings.Contains(text, unit) {
				t.Errorf("%s has no %s", page, unit)
			}
		}
	}
}
