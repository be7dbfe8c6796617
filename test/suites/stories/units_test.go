package stories_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"machine-pivot/day2"
	"machine-pivot/firstboot"
	"machine-pivot/internal/fault"
	"machine-pivot/internal/machineconfig"
	"machine-pivot/pivot"
	"machine-pivot/rpmostree"
	"machine-pivot/test/worlds/hostdir"
	"machine-pivot/test/worlds/oscontainer"
)

// unit returns the text of a unit with an [Install] section.
func unit(install string) string { return "[Service]\nExecStart=/bin/a\n[Install]\n" + install + "\n" }

// withUnits returns a host with units in its next image, and another image without them. In its /usr/etc the next image
// enables new.service and beside.service and masks masked.service.
func withUnits(t *testing.T) (h *hostdir.Host, without string) {
	t.Helper()
	h = hostdir.New(t)
	without = h.Push(h.NativeImage())
	h.PutIntoNext(map[string]string{
		"usr/lib/systemd/system/early.service":            unit("WantedBy=multi-user.target"),
		"usr/lib/systemd/system/only.service":             unit("WantedBy=multi-user.target\nAlias=dbus-only.service"),
		"usr/lib/systemd/system/new.service":              unit("WantedBy=multi-user.target"),
		"usr/lib/systemd/system/beside.service":           unit("WantedBy=brought.target"),
		"usr/lib/systemd/system-preset/90-default.preset": "disable *\n",
	})
	h.LinkIntoNext(map[string]string{
		"usr/etc/systemd/system/brought.target.wants/new.service":    "/usr/lib/systemd/system/new.service",
		"usr/etc/systemd/system/brought.target.wants/beside.service": "/usr/lib/systemd/system/beside.service",
		"usr/etc/systemd/system/masked.service":                      "/dev/null",
	})
	h.PutIntoNext(map[string]string{"usr/lib/systemd/system/masked.service": unit("WantedBy=multi-user.target")})
	h.Serve(h.NativeImage())
	return h, without
}

// enablement lists all links below a host's /etc/systemd/system.
func enablement(t *testing.T, h *hostdir.Host) string {
	t.Helper()
	return shell(t, h, "mkdir -p etc/systemd/system; cd etc/systemd/system; find . -type l -printf '%P -> %l\n' | sort")
}

const onlyEnabled = "dbus-only.service -> /usr/lib/systemd/system/only.service\n"

// TestUnitsOfTheNextImage (P58): a unit that only the new image ships is enabled, one that it
// enables is disabled, and one that it masks is unmasked. The next MachineConfig takes that
// back.
func TestUnitsOfTheNextImage(t *testing.T) {
	h, _ := withUnits(t)
	const asked = `
  config:
    ignition: {version: 3.4.0}
    systemd:
      units:
      - {name: only.service, enabled: true}
      - {name: early.service, enabled: true}
      - {name: new.service, enabled: false}
      - {name: gone.service, enabled: false}
      - {name: masked.service, mask: false}
      - {name: ours.service, contents: "[Install]\nWantedBy=multi-user.target\n"}
`
	image := fmt.Sprintf("  osImageURL: %s\n", h.Image)
	plan, err := (&day2.Apply{Machine: newMachine(t, h), Config: day2.Config{File: "mc", Data: []byte("spec:\n" + image + asked)}}).Plan(t.Context(), day2.RunOptions{})
	must(t, err)
	var units []string
	for _, u := range plan.Units {
		units = append(units, u.String())
	}
	if got, want := strings.Join(units, ", "), "enable unit only.service of the new image, enable unit early.service of the new image, preset unit ours.service"; got != want {
		t.Errorf("the plan says %q, want %q", got, want)
	}
	if _, _, err := apply(t, h, asked); fault.KindOf(err) != fault.BadInput || !strings.Contains(err.Error(), "unit only.service: there is no such unit") || fault.HintOf(err) == "" {
		t.Errorf("without the image: %v", err)
	}
	changed, notes, err := apply(t, h, image+asked)
	if err != nil || !changed || h.Version() != "B.2" {
		t.Fatalf("version %s, %v: %s", h.Version(), err, notes)
	}
	const beside = "brought.target.wants/beside.service -> /usr/lib/systemd/system/beside.service\n"
	const early = "multi-user.target.wants/early.service -> /usr/lib/systemd/system/early.service\n"
	want := beside + onlyEnabled + early + "multi-user.target.wants/only.service -> /usr/lib/systemd/system/only.service\n"
	if got := enablement(t, h); got != want {
		t.Errorf("links\n%s\nwant\n%s", got, want)
	}
	if drift := verify(t, h); drift != "" {
		t.Errorf("drift %q", drift)
	}
	if changed, notes, err := apply(t, h, image+asked); err != nil || changed {
		t.Errorf("the same changes %v, %v: %s", changed, err, notes)
	}
	shell(t, h, "cd etc/systemd/system; rm multi-user.target.wants/early.service; ln -s /usr/lib/systemd/system/new.service brought.target.wants; ln -s /dev/null masked.service; rm -f dbus-only.service; ln -s x dbus-only.service")
	drift := verify(t, h)
	for _, want := range []string{"link /etc/systemd/system/multi-user.target.wants/early.service: missing", "entry /etc/systemd/system/brought.target.wants/new.service: still there",
		"entry /etc/systemd/system/masked.service: still there", "unit only.service: its alias dbus-only.service is taken by a link x"} {
		if !strings.Contains(drift, want) {
			t.Errorf("drift %q lacks %q", drift, want)
		}
	}
	shell(t, h, "cd etc/systemd/system; rm brought.target.wants/new.service masked.service; ln -sf /usr/lib/systemd/system/only.service dbus-only.service")
	if changed, notes, err := apply(t, h, image+"  kernelArguments: [a=1]\n"); err != nil || !changed {
		t.Fatalf("changed %v, %v: %s", changed, err, notes)
	}
	if got, want := enablement(t, h), beside+"brought.target.wants/new.service -> /usr/lib/systemd/system/new.service\nmasked.service -> /dev/null\n"; got != want {
		t.Errorf("without the units: links\n%s\nwant\n%s", got, want)
	}
}

// units returns a spec that asks for units, and for an image if it is not "".
func units(image, some string) string {
	spec := "  config: {ignition: {version: 3.4.0}, systemd: {units: [" + some + "]}}\n"
	if image != "" {
		spec += "  osImageURL: " + image + "\n"
	}
	return spec
}

// TestUnitThatChanges (P58): an enabled unit that the new image lacks or masks is named before
// the commit, with a hint. A disabled one needs nothing. If the new image's unit has other
// links, the old ones are removed.
func TestUnitThatChanges(t *testing.T) {
	h, without := withUnits(t)
	if changed, notes, err := apply(t, h, units(h.Image, "{name: early.service, enabled: true}")); err != nil || !changed {
		t.Fatalf("changed %v, %v: %s", changed, err, notes)
	}
	h.PutIntoNext(map[string]string{"usr/lib/systemd/system/early.service": unit("WantedBy=graphical.target")})
	next := h.Push(h.NativeImage())
	if changed, notes, err := apply(t, h, units(next, "{name: early.service, enabled: true}")); err != nil || !changed {
		t.Fatalf("changed %v, %v: %s", changed, err, notes)
	}
	if got := enablement(t, h); !strings.Contains(got, "graphical.target.wants/early.service") || strings.Contains(got, "multi-user.target.wants/early.service") {
		t.Errorf("links %s", got)
	}
	lost := units(without, "{name: early.service, enabled: true}, {name: only.service, enabled: true}")
	_, _, err := apply(t, h, lost)
	for _, want := range []string{"unit early.service: there is no such unit", "unit only.service: there is no such unit", "in the new system"} {
		if fault.KindOf(err) != fault.BadInput || !strings.Contains(err.Error(), want) || fault.HintOf(err) == "" {
			t.Errorf("error %v, want %q", err, want)
		}
	}
	if h.Boot(); !strings.Contains(enablement(t, h), "early.service") {
		t.Error("another system is booted")
	}
	// The image is in the repository now, so a plan reports it, too.
	plan, err := (&day2.Apply{Machine: newMachine(t, h), Config: day2.Config{File: "mc", Data: []byte("spec:\n" + lost)}}).Plan(t.Context(), day2.RunOptions{})
	if note := "warning: in the new system: unit early.service: there is no such unit; unit only.service: there is no such unit"; err != nil || !slices.Contains(plan.Notes, note) {
		t.Errorf("the plan notes %q, %v", plan.Notes, err)
	}
	if changed, notes, err := apply(t, h, units(without, "{name: early.service, enabled: false}")); err != nil || !changed || strings.Contains(enablement(t, h), "early.service") {
		t.Errorf("changed %v, %v: %s%s", changed, err, notes, enablement(t, h))
	}
}

// TestUnitsOfAFirstBoot (P58): a first boot applies wishes for units too, in the started system
// and in an initramfs.
func TestUnitsOfAFirstBoot(t *testing.T) {
	for _, early := range []bool{false, true} {
		t.Run(fmt.Sprintf("early %v", early), func(t *testing.T) {
			h, _ := withUnits(t)
			h.Write(firstboot.EncapsulatedPath, fmt.Appendf(nil, `{"spec":{"osImageURL":%q,"config":{"ignition":{"version":"3.4.0"},"systemd":{"units":[
				{"name":"only.service","enabled":true},{"name":"new.service","enabled":false},{"name":"beside.service","enabled":false}]}}}}`, h.Image))
			m := newMachine(t, h)
			if early {
				m.Engine = &rpmostree.Direct{Ostree: rpmostree.Ostree{Sysroot: h.Sysroot(), Run: h.Run}}
			}
			must(t, (&firstboot.FirstBoot{Machine: m, File: firstboot.EncapsulatedPath, NoReboot: true}).Run(t.Context()))
			h.Boot()
			must(t, boot(t, h))
			if got, want := enablement(t, h), onlyEnabled+"masked.service -> /dev/null\nmulti-user.target.wants/only.service -> /usr/lib/systemd/system/only.service\n"; got != want || phase(t, h) != pivot.PhaseDone {
				t.Errorf("phase %s, links\n%s\nwant\n%s", phase(t, h), got, want)
			}
			if h.Read(machineconfig.RecordPath) != nil {
				t.Error("a first boot has a record")
			}
		})
	}
}

// TestUnitOfAnExtension (P58): a unit from a package that rpm-ostree layers on top of the image is
// enabled in the same transaction.
func TestUnitOfAnExtension(t *testing.T) {
	packages := []oscontainer.RPM{{Name: "usbguard", Version: "1.0", Files: map[string][]byte{"/usr/lib/systemd/system/usbguard.service": []byte(unit("WantedBy=basic.target"))}}}
	h, image := extensionsHost(t, packages)
	h.Write(firstboot.EncapsulatedPath, fmt.Appendf(nil, `{"spec":{"osImageURL":%q,"baseOSExtensionsContainerImage":%q,"extensions":["usbguard"],
		"config":{"ignition":{"version":"3.4.0"},"systemd":{"units":[{"name":"usbguard.service","enabled":true}]}}}}`, h.Image, image))
	must(t, bootAuto(t, h))
	h.Boot()
	must(t, bootAuto(t, h))
	if got, want := enablement(t, h), "basic.target.wants/usbguard.service -> /usr/lib/systemd/system/usbguard.service\n"; got != want || phase(t, h) != pivot.PhaseDone {
		t.Errorf("phase %s, links %s, want %s", phase(t, h), got, want)
	}
	if drift := verify(t, h); drift != "" {
		t.Errorf("drift %q", drift)
	}

	// A plan for another image, which is in the repository, does not know what the package will
	// bring. It warns of a unit that neither system has.
	next := h.Push(h.NativeImage())
	r := day2.Rebase{Machine: newMachine(t, h), Image: next, ExtensionsImage: image}
	must(t, r.UseEngine("auto"))
	_, err := r.Download(t.Context())
	must(t, err)
	const wants = "{name: usbguard.service, enabled: true}, {name: nobody.service, enabled: true}"
	plan, err := (&day2.Apply{Machine: newMachine(t, h), Config: day2.Config{File: "mc", Data: []byte("spec:\n  extensions: [usbguard]\n" + units(next, wants))}}).Plan(t.Context(), day2.RunOptions{})
	if text := strings.Join(plan.Notes, "\n"); err != nil || strings.Contains(text, "usbguard.service") || !strings.Contains(text, "warning: in the new system: unit nobody.service: ") {
		t.Errorf("the plan notes %q, %v", text, err)
	}
}
