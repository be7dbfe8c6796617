package packaging

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	systemdunits "machine-pivot/systemd-units"
)

// presetUnits returns the units that an installation enables. The preset is the only list of them.
func presetUnits(t *testing.T) (units []string) {
	t.Helper()
	for line := range strings.Lines(string(read(t, filepath.Join(root, "systemd-units/80-pivot.preset")))) {
		if unit, ok := strings.CutPrefix(strings.TrimSpace(line), "enable "); ok {
			units = append(units, unit)
		}
	}
	return units
}

// unitFiles returns the paths of the system's units of ours.
func unitFiles(t *testing.T) []string {
	t.Helper()
	var files []string
	for _, kind := range []string{"service", "path", "timer"} {
		found, err := filepath.Glob(filepath.Join(root, "systemd-units/*."+kind))
		if err != nil || len(found) == 0 {
			t.Fatalf("there are no units: %v", err)
		}
		files = append(files, found...)
	}
	return files
}

// TestUnitsAreListedOnce: each unit that can be enabled is in the preset, and each command of a document or a
// script that enables some of them enables all.
func TestUnitsAreListedOnce(t *testing.T) {
	units := presetUnits(t)
	installable := 0
	for _, file := range unitFiles(t) {
		if !strings.Contains(string(read(t, file)), "\n[Install]\n") || filepath.Base(file) == systemdunits.UpgradeTimer { // by an administrator
			continue
		}
		if installable++; !slices.Contains(units, filepath.Base(file)) {
			t.Errorf("the preset does not enable %s", filepath.Base(file))
		}
	}
	if installable != len(units) || installable < 5 {
		t.Errorf("%d units can be enabled, the preset has %q", installable, units)
	}
	commands := 0
	command := regexp.MustCompile(`systemctl (?:--root=?\S* )?(?:preset|enable)((?: +pivot-[a-z-]+(?:\.service|\.path)?)+)`)
	for _, path := range texts(t) {
		for _, m := range command.FindAllStringSubmatch(string(read(t, path)), -1) {
			names := strings.Fields(m[1])
			if len(names) == 1 { // one unit, for a reason of its own
				continue
			}
			commands++
			for i, name := range names {
				if !strings.HasSuffix(name, ".path") {
					names[i] = strings.TrimSuffix(name, ".service") + ".service"
				}
			}
			for _, unit := range units {
				if !slices.Contains(names, unit) {
					t.Errorf("%s: %q leaves out %s", path, m[0], unit)
				}
			}
		}
	}
	if commands < 3 {
		t.Errorf("only %d commands of documents enable units", commands)
	}
}

// texts returns the documents and the files of the packages.
func texts(t *testing.T) (paths []string) {
	t.Helper()
	for _, pattern := range []string{"Makefile", "README.md", "docs/*.md", "docs/dev/*.md", "docs/recipes/*.md", "packaging/*", "packaging/debian/*"} {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range found {
			if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
				paths = append(paths, path)
			}
		}
	}
	return paths
}

// TestDist: the archive is the same under any umask, and the spec file has the units of the preset.
func TestDist(t *testing.T) {
	if testing.Short() {
		t.Skip("vendors the modules three times")
	}
	checkout, dir := clone(t, root), t.TempDir()
	var archives []string
	for _, umask := range []string{"022", "077", "002"} {
		out := filepath.Join(dir, umask+".tar.gz")
		run(t, checkout, "sh", "-c", "umask "+umask+" && packaging/dist.sh "+out+" 1.2.3")
		archives = append(archives, string(read(t, out)))
	}
	if archives[0] != archives[1] || archives[0] != archives[2] {
		t.Error("the archives differ")
	}
	spec := run(t, dir, "tar", "-xOf", "022.tar.gz", "pivot-1.2.3/pivot.spec")
	if want := "%systemd_post " + strings.Join(presetUnits(t), " ") + "\n"; !strings.Contains(spec, want) {
		t.Errorf("the spec file has no line %q", want)
	}
}
