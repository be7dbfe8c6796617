package stories_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"machine-pivot/day2"
)

// TestEmptyDropIn: a drop-in without contents removes the image's or the administrator's
// file of its name below /etc, as the machine-config-daemon does.
func TestEmptyDropIn(t *testing.T) {
	for _, contents := range []string{"", `, contents: ""`} {
		h, _ := withUnits(t)
		const name = "/etc/systemd/system/early.service.d/10-site.conf"
		shell(t, h, "mkdir -p etc/systemd/system/early.service.d")
		h.Write(name, []byte("[Service]\nNice=1\n"))
		spec := units("", "{name: early.service, dropins: [{name: 10-site.conf"+contents+"}]}")
		if changed, notes, err := apply(t, h, spec); err != nil || !changed {
			t.Fatalf("changed %v, %v: %s", changed, err, notes)
		}
		if _, err := os.Lstat(h.Path(name)); !os.IsNotExist(err) {
			t.Errorf("the drop-in is there: %v", err)
		}
		if drift := verify(t, h); drift != "" {
			t.Errorf("drift %q", drift)
		}
		if changed, notes, err := apply(t, h, spec); err != nil || changed {
			t.Errorf("again: changed %v, %v: %s", changed, err, notes)
		}
	}
}

// TestWatchSeesLinks: a link that enables a unit is noticed when it is made, also in a
// directory that was not there.
func TestWatchSeesLinks(t *testing.T) {
	for _, dir := range []string{"brought.target.wants", "other.target.requires"} {
		h, _ := withUnits(t)
		if changed, notes, err := apply(t, h, units(h.Image, "{name: new.service, enabled: false}")); err != nil || !changed {
			t.Fatalf("changed %v, %v: %s", changed, err, notes)
		}
		if drift := verify(t, h); drift != "" {
			t.Fatalf("drift %q", drift)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		told := 0
		w := day2.Watch{Machine: newMachine(t, h), Every: time.Hour, UntilDrift: true, Tell: func([]string) {
			if told++; told == 1 {
				shell(t, h, "mkdir -p etc/systemd/system/"+dir+"; ln -s /usr/lib/systemd/system/new.service etc/systemd/system/"+dir)
			}
		}}
		differences, err := w.Run(ctx)
		cancel()
		if want := "entry /etc/systemd/system/" + dir + "/new.service: still there"; err != nil || !slices.Contains(differences, want) {
			t.Errorf("%s: differences %q, %v", dir, differences, err)
		}
	}
}

// TestEmptyUnit: empty contents of a unit are none: the former MachineConfig's file of the unit is removed, and the
// image's unit is never masked.
func TestEmptyUnit(t *testing.T) {
	for before, more := range map[string]string{
		"contents: \"[Service]\\nExecStart=/bin/b\\n\"": "",
		"enabled: true":  ", enabled: true",
		"enabled: false": `, enabled: true, dropins: [{name: 10-a.conf, contents: "[Service]\nNice=5\n"}]`,
		"mask: true":     ", mask: false",
	} {
		h, _ := withUnits(t)
		if _, _, err := apply(t, h, units(h.Image, "{name: early.service, "+before+"}")); err != nil {
			t.Fatal(err)
		}
		spec := units(h.Image, `{name: early.service, contents: ""`+more+`}`)
		if _, notes, err := apply(t, h, spec); err != nil {
			t.Fatalf("%s: %v: %s", more, err, notes)
		}
		if _, err := os.Lstat(h.Path("/etc/systemd/system/early.service")); !os.IsNotExist(err) {
			t.Errorf("%s: there is a file or a link for the unit: %v", more, err)
		}
		if drift := verify(t, h); drift != "" {
			t.Errorf("%s: drift %q", more, drift)
		}
	}
}

// TestEmptyUnitFile: an empty file for a unit is a mask, whoever writes it: its unit cannot be
// enabled, verify says so, and unmasking removes it.
func TestEmptyUnitFile(t *testing.T) {
	h, _ := withUnits(t)
	const name, enabled = "/etc/systemd/system/early.service", "systemd: {units: [{name: early.service, enabled: true}]}"
	_, _, err := apply(t, h, "  config: {ignition: {version: 3.4.0}, storage: {files: [{path: "+name+"}]}, "+enabled+"}\n  osImageURL: "+h.Image+"\n")
	if err == nil || !strings.Contains(err.Error(), "early.service: it is masked") {
		t.Errorf("enabled together with an empty file: %v", err)
	}
	if _, notes, err := apply(t, h, units(h.Image, "{name: early.service, enabled: true}")); err != nil {
		t.Fatalf("%v: %s", err, notes)
	}
	h.Write(name, nil)
	if drift := verify(t, h); !strings.Contains(drift, "early.service: it is masked") {
		t.Errorf("drift %q", drift)
	}
	if _, notes, err := apply(t, h, units(h.Image, "{name: early.service, enabled: true, mask: false}")); err != nil {
		t.Fatalf("%v: %s", err, notes)
	}
	if drift := verify(t, h); drift != "" {
		t.Errorf("unmasked: drift %q", drift)
	}
}

// TestWatchUntil: a watch continues beside differences, unless it is to end with the first one; and such a watch
// continues without any.
func TestWatchUntil(t *testing.T) {
	h, _ := withUnits(t)
	if changed, notes, err := apply(t, h, units(h.Image, "{name: new.service, enabled: false}")); err != nil || !changed {
		t.Fatalf("changed %v, %v: %s", changed, err, notes)
	}
	for until, drifts := range map[bool]bool{false: true, true: false} {
		link := h.Path("/etc/systemd/system/other.target.requires/new.service")
		must(t, os.RemoveAll(link))
		if drifts {
			must(t, errors.Join(os.MkdirAll(filepath.Dir(link), 0o755), os.Symlink("/usr/lib/systemd/system/new.service", link)))
		}
		ctx, cancel := context.WithCancel(t.Context())
		told := 0
		w := day2.Watch{Machine: newMachine(t, h), Every: time.Millisecond, UntilDrift: until, Tell: func(differences []string) {
			if told++; told == 3 || (len(differences) > 0) != drifts {
				cancel()
			}
		}}
		differences, err := w.Run(ctx)
		if err != nil || told < 3 || (len(differences) > 0) != drifts {
			t.Errorf("until the first one: %v; told %d times, differences %q, %v", until, told, differences, err)
		}
		cancel()
	}
}
