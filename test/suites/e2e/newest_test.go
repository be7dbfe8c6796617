package e2e_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"machine-pivot/internal/settings"
	"machine-pivot/pivot"
	"machine-pivot/test/worlds/bootlab"
	"machine-pivot/test/worlds/vm"
)

// TestNewestRelease runs the newest release that guests can have, with composefs from the beginning. It has a first
// boot in the initramfs with power cuts, a change, a trial, counted boot entries, and soft reboots. It is part of "make
// nightly".
func TestNewestRelease(t *testing.T) {
	spec := vm.GuestSpec{Suite: vm.Forky, Overlay: []vm.TreeFile{{Path: "/" + prepareRoot, Mode: 0o644, Content: []byte(composefsNeeded)}}}
	t.Run("initramfs, day 2, trial", func(t *testing.T) { countedBoots(t, newLab(t, spec)) })
	spec.SameKernel = true
	t.Run("soft reboots", func(t *testing.T) { softReboots(t, newLab(t, spec)) })
}

// countedBoots runs a first boot in the initramfs, an apply and a trial by kexec on one machine. Its libostree gives
// new boot entries three tries. Pivot must read such entries, and keep the names that the boot loader has given them.
func countedBoots(t *testing.T, l *bootlab.Lab) {
	want := l.Wanted()
	config := bootlab.Config{
		Name: "one", Image: l.Image, Kargs: append(slices.Clone(want.Kargs), "day2.one"),
		Files: map[string]string{"/etc/day2/file": "one\n", "/var/lib/day2.file": "one\n"},
	}
	files, err := bootlab.Day2(countedSays, map[string]string{"apply": "pivot apply -r one.json"}, config)
	if err != nil {
		t.Fatal(err)
	}
	c := newCutter(t, l, cutImage{reference: l.Image}, bootlab.Setup{
		Mode: settings.ModeInitramfs, OwnOstree: true, RepoConfig: []string{"sysroot.boot-counting-tries=3"},
		Files: slices.Concat(files, tries(l, "stays", "--append-karg trial.stays --try=1h"),
			bootlab.Typed("confirm", "pivot confirm && pivot verify", "PathExists=/var/lib/pivot/trial\nConditionKernelCommandLine=trial.stays")),
	})
	m := c.machine
	c.cut(cuts{flush: 8, random: 3, least: 12}, c.recordFirst())

	now := entries(t, m)
	name, count, _ := strings.Cut(now[0], "+")
	if count != "3.conf" && count != "3-0.conf" || len(now) != 2 {
		t.Fatalf("boot entries %q, want two, the default with three tries", now)
	}
	counted := name + "+2-1.conf"
	// As the boot loader does when it starts the entry.
	if err := m.ChangeBoot(t.Context(), "cd boot/loader/entries && mv "+now[0]+" "+counted); err != nil {
		t.Fatal(err)
	}
	second := boot(t, m, bootlab.TypedOn("apply"))
	if second.Exit != vm.Rebooted {
		t.Fatalf("the machine %s, want a reboot into the MachineConfig", second.Exit)
	}
	first := map[string]string{"version": "B.2", "root": "overlayfs", "phase": "done", "file": "", "var": "", "verify": "same", "planned": "yes", "entries": now[1] + " " + counted}
	if said := bootlab.Day2Said(second); !maps.Equal(said, first) {
		t.Errorf("after the first boot the machine says\n%v\nwant\n%v", said, first)
	}
	applied := entries(t, m)
	if len(applied) != 2 || !strings.Contains(applied[0], "+3") || !strings.Contains(applied[1], "+2-1") {
		t.Errorf("boot entries %q, want that the new one has three tries, and the other one what the boot loader left it", applied)
	}
	third := boot(t, m, vm.BootOptions{ExtraArgs: []string{"test.stays"}})
	if r := report(t, third); third.Exit != vm.PoweredOff || !strings.Contains(r.Cmdline, "trial.stays") || r.Status.Phase != string(pivot.PhaseDone) || r.FailedUnits != "" {
		t.Errorf("the machine %s: command line %q, status %+v, failed units %q", third.Exit, r.Cmdline, r.Status, r.FailedUnits)
	}
	if next := entry(t, m); !strings.Contains(next.Options, "trial.stays") || !strings.Contains(next.Options, "day2.one") {
		t.Errorf("the next boot has the options %q", next.Options)
	}
	t.Logf("boot entries: %q, applied %q, tried %q", now, applied, entries(t, m))
}

// countedSays prints the state of the machine. pivot plan reads the kernel arguments in the entry that counts.
const countedSays = `. /etc/os-release; say version $VERSION_ID
say root $(stat -f -c %T /)
say phase $(pivot status -o json | tr -d " \n" | grep -o "\"phase\":\"[a-z]*\"" | head -n 1 | cut -d"\"" -f4)
say file $(cat /etc/day2/file 2>/dev/null)
say var $(cat /var/lib/day2.file 2>/dev/null)
say verify $(pivot verify >/dev/null && echo same || echo differs)
say planned $(pivot plan --delete-karg nosmt | grep -q -- "- nosmt" && echo yes || echo no)
say entries $(ls /boot/loader/entries)
`

// entries returns the file names of the boot entries, the default first.
func entries(t *testing.T, m *vm.Machine) (files []string) {
	t.Helper()
	all, err := m.BootEntries(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range all {
		files = append(files, e.File)
	}
	return files
}
