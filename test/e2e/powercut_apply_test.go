package e2e_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"machine-pivot/internal/disruption"
	"machine-pivot/internal/live"
	"machine-pivot/pivot"
	"machine-pivot/test/lab"
	"machine-pivot/test/vm"
)

// applyPowerCuts (P55, P56, P57) records the boot in which somebody applies another
// MachineConfig, with an image, units, /var and removals, and the one after it, which projects
// into /var; and a boot in which what runs is changed. Each disk that a power cut leaves has
// the old system or the new one, with all of its own /etc, or says how to go on; some are booted
// until they arrive.
func applyPowerCuts(t *testing.T, l *lab.Lab) {
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

// applyCutter is a cutter for machines that go from one MachineConfig to another.
type applyCutter struct {
	*cutter
	typed          string // the MachineConfig that is applied
	oldEtc, newEtc etc    // of both systems; live they are one
}

// etc is a deployment's /etc by its paths, and which of them the system itself changes.
type etc struct {
	is       map[string]string
	volatile map[string]bool
}

// The MachineConfigs, by their names. Live is what one of one's rules needs no reboot for.
func applyConfigs(image string) []lab.Config {
	return []lab.Config{
		{
			Name: "one", Kargs: []string{"day2.one"},
			Files: map[string]string{
				"/etc/day2/file": "one\n", "/etc/day2/gone": "one\n", "/var/lib/day2.file": "one\n", "/var/lib/day2.gone": "one\n",
				disruption.RulesPath: "files: [{path: /etc/day2, actions: [{type: None}]}]\n",
			},
			Units: []lab.Unit{{Name: "of-one.service", Enabled: true, Contents: lab.Day2Unit}},
		},
		{
			Name: "two", Image: image, Kargs: []string{"day2.two"},
			Files: map[string]string{"/etc/day2/file": "two\n", "/etc/day2/made/file": "two\n", "/var/lib/day2.file": "two\n"},
			Units: []lab.Unit{{Name: "of-one.service"}, {Name: "of-two.service", Enabled: true, Contents: lab.Day2Unit}},
		},
		{
			Name: "live", Kargs: []string{"day2.one"},
			Files: map[string]string{
				"/etc/day2/file": "live\n", "/etc/day2/made/file": "live\n", "/var/lib/day2.file": "one\n", "/var/lib/day2.gone": "one\n",
				disruption.RulesPath: "files: [{path: /etc/day2, actions: [{type: None}]}]\n",
			},
			Units: []lab.Unit{{Name: "of-one.service", Enabled: true, Contents: lab.Day2Unit}},
		},
	}
}

// applySays says what the machine is.
const applySays = `. /etc/os-release; say version $VERSION_ID
for f in file gone made/file; do say $f $(cat /etc/day2/$f 2>/dev/null); done
for f in file gone; do say var-$f $(cat /var/lib/day2.$f 2>/dev/null); done
for u in one two; do say $u $(systemctl is-active of-$u.service); done
say karg $(tr " " "\n" </proc/cmdline | grep ^day2)
say record $(grep -so "\"name\": *\"[a-z]*\"" /etc/pivot/machineconfig.json | cut -d"\"" -f4)
`

// applyIs is what a machine with a MachineConfig says that it is.
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

// newApplyCutter makes a machine that has the MachineConfig one, and settles it in that.
func newApplyCutter(t *testing.T, l *lab.Lab) *applyCutter {
	t.Helper()
	const then = "; ./says; pivot verify"
	files, err := lab.Day2(applySays, map[string]string{
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
	if b := boot(t, c.machine, lab.TypedOn("one")); b.Exit != vm.Rebooted {
		t.Fatalf("the machine %s, want that it rebooted into the first MachineConfig", b.Exit)
	}
	c.typed = "one"
	c.expectApplied(boot(t, c.machine, lab.TypedOn("one")))
	c.old = c.inspect(c.machine.Disk)
	c.settle(&c.oldEtc, c.old)
	return c
}

// recordApply records a boot in which a MachineConfig is applied.
func (c *applyCutter) recordApply(name string, end vm.Reason) recording {
	c.t.Helper()
	c.typed, c.power = name, lab.TypedOn(name)
	return c.record(name+" "+string(end), end)
}

// read is what a system has in /etc, but for what the program puts there only for a while.
func (c *applyCutter) read(disk *vm.Contents, deployment string) map[string]string {
	c.t.Helper()
	entries, err := disk.EntriesIn(deployment + "/etc")
	if err != nil {
		c.t.Fatal(err)
	}
	maps.DeleteFunc(entries, func(path string, _ string) bool {
		return strings.HasPrefix("/etc/"+path, live.JournalPath) || strings.HasPrefix("/etc/"+path, filepath.Dir(live.JournalPath)+"/live/") || strings.HasPrefix(filepath.Base(path), ".")
	})
	return entries
}

// readNow is read of the machine's own disk.
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

// settle learns what a system has in /etc now. What differs from what it had before the
// system itself has changed in between.
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

// differs names what is otherwise where a disk has something in this /etc.
func (e etc) differs(have map[string]string) (paths []string) {
	for path, text := range e.is {
		if have[path] != text && !e.volatile[path] {
			paths = append(paths, path)
		}
	}
	for path := range have {
		if _, wanted := e.is[path]; !wanted && !e.volatile[path] {
			paths = append(paths, path)
		}
	}
	slices.Sort(paths)
	return paths
}

// checkEtc wants a system to have all of its own /etc. One that was changed while it ran has
// the old one or the new one, or a whole journal by which its next boot goes on.
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
	if journal, err := disk.ReadFile(deployment + live.JournalPath); err == nil {
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

// expectApplied wants a machine to be what the MachineConfig that was typed asks for.
func (c *applyCutter) expectApplied(b *vm.BootResult) {
	c.t.Helper()
	if b.Exit != vm.PoweredOff {
		c.t.Fatalf("typed %s: the machine %s", c.typed, b.Exit)
	}
	if said, want := lab.Day2Said(b), applyIs(c.typed); !maps.Equal(said, want) {
		c.t.Errorf("typed %s: the machine says\n%v\nwant\n%v", c.typed, said, want)
	}
	if r := report(c.t, b); r.FailedUnits != "" || r.Status.Phase != string(pivot.PhaseDone) {
		c.t.Errorf("failed units %q, status %+v", r.FailedUnits, r.Status)
	}
}
