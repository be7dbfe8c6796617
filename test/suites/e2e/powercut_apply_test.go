package e2e_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"machine-pivot/day2"
	"machine-pivot/internal/disruption"
	"machine-pivot/pivot"
	"machine-pivot/test/worlds/bootlab"
	"machine-pivot/test/worlds/vm"
)

// applyPowerCuts (P55, P56, P57) records the boot in which another MachineConfig is applied, with an
// image, units, files in /var and removals, and the following boot, which projects into /var. It
// also records a boot in which a MachineConfig is applied live. After each power cut the disk must
// have the old or the new system with that system's complete /etc, or a journal to continue from.
// Some of the disks are booted until they reach their target.
func applyPowerCuts(t *testing.T, l *bootlab.Lab) {
	amount := cuts{flush: 8, random: 10, boots: 2, least: 40}
	if long() {
		amount = cuts{flush: 1, random: 100, boots: 4, least: 400}
	}
	t.Run("committed", func(t *testing.T) {
		c := newApplyCutter(t, l)
		first := c.recordApply("two", vm.Rebooted)
		c.inspectNew()
		c.settle(&c.oldEtc, c.old)
		c.settle(&c.newEtc, c.new)
		second := c.recordApply("two", vm.PoweredOff)
		c.settle(&c.newEtc, c.new)
		c.arrived(second.boot)
		c.cut(amount, first, second)
	})
	t.Run("live", func(t *testing.T) {
		amount.least /= 4
		c := newApplyCutter(t, l)
		only := c.recordApply("live", vm.PoweredOff)
		c.new = c.old
		c.newEtc = etc{c.readNow(c.old.Deployment), c.oldEtc.volatile}
		c.arrived(only.boot)
		c.cut(amount, only)
	})
}

// applyCutter is a cutter for machines that change from one MachineConfig to another.
type applyCutter struct {
	*cutter
	typed          string // the MachineConfig that is applied
	oldEtc, newEtc etc    // before and after; in a live change, both of the same system
}

// etc describes a deployment's entries in /etc by path, and names those that the system itself
// changes.
type etc struct {
	is       map[string]string
	volatile map[string]bool
}

// applyConfigs returns the MachineConfigs. "live" can follow "one" without a reboot, because of a
// rule in "one".
func applyConfigs(image string) []bootlab.Config {
	return []bootlab.Config{
		{
			Name: "one", Kargs: []string{"day2.one"},
			Files: map[string]string{
				"/etc/day2/file": "one\n", "/etc/day2/gone": "one\n", "/var/lib/day2.file": "one\n", "/var/lib/day2.gone": "one\n",
				disruption.RulesPath: "files: [{path: /etc/day2, actions: [{type: None}]}]\n",
			},
			Units: []bootlab.Unit{{Name: "of-one.service", Enabled: true, Contents: bootlab.Day2Unit}},
		},
		{
			Name: "two", Image: image, Kargs: []string{"day2.two"},
			Files: map[string]string{"/etc/day2/file": "two\n", "/etc/day2/made/file": "two\n", "/var/lib/day2.file": "two\n"},
			Units: []bootlab.Unit{{Name: "of-one.service"}, {Name: "of-two.service", Enabled: true, Contents: bootlab.Day2Unit}},
		},
		{
			Name: "live", Kargs: []string{"day2.one"},
			Files: map[string]string{
				"/etc/day2/file": "live\n", "/etc/day2/made/file": "live\n", "/var/lib/day2.file": "one\n", "/var/lib/day2.gone": "one\n",
				disruption.RulesPath: "files: [{path: /etc/day2, actions: [{type: None}]}]\n",
			},
			Units: []bootlab.Unit{{Name: "of-one.service", Enabled: true, Contents: bootlab.Day2Unit}},
		},
	}
}

// applySays prints the state of the machine.
const applySays = `. /etc/os-release; say version $VERSION_ID
for f in file gone made/file; do say $f $(cat /etc/day2/$f 2>/dev/null); done
for f in file gone; do say var-$f $(cat /var/lib/day2.$f 2>/dev/null); done
for u in one two; do say $u $(systemctl is-active of-$u.service); done
say karg $(tr " " "\n" </proc/cmdline | grep ^day2)
say record $(grep -so "\"name\": *\"[a-z]*\"" /etc/pivot/machineconfig.json | cut -d"\"" -f4)
`

// applyIs returns what applySays prints on a machine with a MachineConfig.
func applyIs(config string) map[string]string {
	one := map[string]string{
		"version": "A.1", "file": "one", "gone": "one", "made/file": "", "var-file": "one", "var-gone": "one",
		"one": "active", "two": "inactive", "karg": "day2.one", "record": "one",
	}
	switch config {
	case "two":
		return with(one, "version", "B.2", "file", "two", "gone", "", "made/file", "two", "var-file", "two", "var-gone", "",
			"one", "inactive", "two", "active", "karg", "day2.two", "record", "two")
	case "live":
		return with(one, "file", "live", "gone", "", "made/file", "live", "record", "live")
	}
	return one
}

// newApplyCutter makes a machine and boots it until it runs with the MachineConfig "one".
func newApplyCutter(t *testing.T, l *bootlab.Lab) *applyCutter {
	t.Helper()
	const then = "; ./says; pivot verify"
	files, err := bootlab.Day2(applySays, map[string]string{
		"one": "pivot apply -r one.json" + then, "two": "pivot apply -r two.json" + then, "live": "pivot apply --reboot=never live.json" + then,
	}, applyConfigs(l.Image)...)
	if err != nil {
		t.Fatal(err)
	}
	c := &applyCutter{cutter: &cutter{t: t, lab: l, want: l.Wanted(), image: cutImage{reference: l.Image}, dir: scratch(t)}}
	if c.machine, err = l.MachineByHand(t.Context(), diskName(t), "true", files, testLog{t}); err != nil {
		t.Fatal(err)
	}
	c.files, c.arrived = c.checkEtc, c.expectApplied
	if b := boot(t, c.machine, bootlab.TypedOn("one")); b.Exit != vm.Rebooted {
		t.Fatalf("the machine %s, want that it rebooted into the first MachineConfig", b.Exit)
	}
	c.typed = "one"
	c.expectApplied(boot(t, c.machine, bootlab.TypedOn("one")))
	c.old = c.inspect(c.machine.Disk)
	c.settle(&c.oldEtc, c.old)
	return c
}

// recordApply records a boot in which the MachineConfig name is applied.
func (c *applyCutter) recordApply(name string, end vm.Reason) recording {
	c.t.Helper()
	c.typed, c.power = name, bootlab.TypedOn(name)
	return c.record(name+" "+string(end), end)
}

// read returns the entries in a deployment's /etc, except for the temporary files of pivot and of ldconfig, which runs in the
// first boot of a system.
func (c *applyCutter) read(disk *vm.Contents, deployment string) map[string]string {
	c.t.Helper()
	entries, err := disk.EntriesIn(deployment + "/etc")
	if err != nil {
		c.t.Fatal(err)
	}
	maps.DeleteFunc(entries, func(path string, _ string) bool {
		return path == "ld.so.cache~" || strings.HasPrefix("/etc/"+path, day2.LiveJournalPath) || strings.HasPrefix("/etc/"+path, filepath.Dir(day2.LiveJournalPath)+"/live/") || strings.HasPrefix(filepath.Base(path), ".")
	})
	return entries
}

// readNow is read for the machine's disk in its present state.
func (c *applyCutter) readNow(deployment string) map[string]string {
	c.t.Helper()
	disk, err := c.machine.Open(c.t.Context())
	if err != nil {
		c.t.Fatal(err)
	}
	entries := c.read(disk, deployment)
	if err := disk.Close(); err != nil {
		c.t.Fatal(err)
	}
	return entries
}

// settle reads the present entries in a system's /etc into e. Entries that differ from those before
// are marked volatile, because the system itself has changed them in the meantime.
func (c *applyCutter) settle(e *etc, s vm.DiskState) {
	c.t.Helper()
	now := c.readNow(s.Deployment)
	for path := range e.is {
		if _, there := now[path]; !there {
			e.volatile[path] = true
		}
	}
	for path, text := range now {
		if e.is != nil && e.is[path] != text {
			e.volatile[path] = true
		}
	}
	if e.is == nil {
		e.volatile = map[string]bool{}
	}
	e.is = now
	for path := range e.volatile {
		if strings.HasPrefix(path, "day2") || strings.HasPrefix(path, "pivot") || strings.Contains(path, "/of-") {
			c.t.Errorf("in %s /etc/%s has changed by itself", s.Deployment, path)
		}
	}
}

// differs returns the paths at which have differs from this /etc, except for volatile ones.
func (e etc) differs(have map[string]string) (paths []string) {
	for path, text := range e.is {
		if have[path] != text && !e.volatile[path] {
			paths = append(paths, path)
		}
	}
	for path := range have {
		temporary := strings.HasSuffix(path, "~") && e.volatile[strings.TrimSuffix(path, "~")] // ldconfig's
		if _, wanted := e.is[path]; !wanted && !e.volatile[path] && !temporary {
			paths = append(paths, path)
		}
	}
	slices.Sort(paths)
	return paths
}

// checkEtc checks that a system has its complete /etc. After a live change that is the old or the
// new one, or else there is an intact journal from which the next boot can continue.
func (c *applyCutter) checkEtc(disk *vm.Contents, deployment string, isNew bool) error {
	have := c.read(disk, deployment)
	if c.old.Deployment != c.new.Deployment {
		system := c.oldEtc
		if isNew {
			system = c.newEtc
		}
		if wrong := system.differs(have); len(wrong) > 0 {
			return fmt.Errorf("a mixture: new system %v, and in its /etc these differ: %q", isNew, wrong)
		}
		return nil
	}
	if journal, err := disk.ReadFile(deployment + day2.LiveJournalPath); err == nil {
		if !json.Valid(journal) {
			return fmt.Errorf("the journal of the change is not whole: %q", journal)
		}
		return nil
	}
	fromOld, fromNew := c.oldEtc.differs(have), c.newEtc.differs(have)
	if len(fromOld) > 0 && len(fromNew) > 0 {
		return fmt.Errorf("a mixture without a journal: from the old /etc differ %q, from the new one %q", fromOld, fromNew)
	}
	return nil
}

// expectApplied checks that a machine is in the state that the applied MachineConfig describes.
func (c *applyCutter) expectApplied(b *vm.BootResult) {
	c.t.Helper()
	if b.Exit != vm.PoweredOff {
		c.t.Fatalf("typed %s: the machine %s", c.typed, b.Exit)
	}
	if said, want := bootlab.Day2Said(b), applyIs(c.typed); !maps.Equal(said, want) {
		c.t.Errorf("typed %s: the machine says\n%v\nwant\n%v", c.typed, said, want)
	}
	if r := report(c.t, b); r.FailedUnits != "" || r.Status.Phase != string(pivot.PhaseDone) {
		c.t.Errorf("failed units %q, status %+v", r.FailedUnits, r.Status)
	}
}
