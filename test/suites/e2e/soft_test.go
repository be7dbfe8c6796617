package e2e_test

import (
	"embed"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"machine-pivot/internal/pid1"
	"machine-pivot/internal/settings"
	"machine-pivot/test/worlds/bootlab"
	"machine-pivot/test/worlds/fleetlock"
	"machine-pivot/test/worlds/vm"
)

//go:embed testdata/soft
var softFiles embed.FS

// softReboots (P46, P90) enters one system after another by soft reboots, all in one boot: a first boot in the system,
// another image, a MachineConfig, and the way back. Pivot is killed at each call of the first one's way. Each start
// is one of its own, and proves what was committed. At the end a kernel argument changes, and the machine reboots.
func softReboots(t *testing.T, l *bootlab.Lab) {
	image, err := l.WithFiles(t.Context(), "soft", map[string]string{"usr/share/soft": "c"})
	if err != nil {
		t.Fatal(err)
	}
	server := fleetlock.StartPlain(t, 1)
	c := newCutter(t, l, cutImage{reference: l.Image}, bootlab.Setup{
		KernelArgs: l.Wanted().Kargs, OwnOstree: true, Files: softStory(t, l, image, server.URL),
	})
	sizes := c.logSizes("@@killed 0", "@@day2 1.slot free")
	only := c.record("soft", vm.Rebooted)
	if ids := bootIDs(t, c.machine); len(ids) == 0 {
		t.Error("the journal has no start")
	}
	expectSaid(t, only.boot, "@@killed 1", "not by a soft reboot, because the kernel arguments change")
	last := boot(t, c.machine, vm.BootOptions{})
	if last.Exit != vm.PoweredOff {
		t.Fatalf("the machine %s, want no further reboot", last.Exit)
	}
	first := map[string]string{
		"version": "B.2", "start": "BOOT+1", "phase": "done", "verify": "same", "libostree": "*", "left": "",
		"own": "", "file": "", "var": "", "karg": "", "failed": "", "drawn": "soft", "slot": "free",
	}
	second := with(first, "start", "BOOT+2", "own", "c", "drawn", "not")
	for _, s := range []struct {
		boot *vm.BootResult
		n    int
		want map[string]string
	}{
		{only.boot, 1, with(first, "then", "committed")},
		{only.boot, 2, second},
		{only.boot, 3, with(second, "start", "BOOT+3", "file", "two", "var", "two")},
		{only.boot, 4, with(second, "start", "BOOT+4")},
		{last, 0, with(second, "start", "BOOT", "karg", "soft.not")},
	} {
		if said := saidAfter(s.boot, s.n); !maps.Equal(said, s.want) {
			t.Errorf("after soft reboot %d the machine says\n%v\nwant\n%v", s.n, said, s.want)
		}
	}
	if asked := strings.Fields(server.Asked()); len(server.Holders("default")) > 0 || len(asked)%2 != 0 || len(asked) < 6 {
		t.Errorf("%q have the slot, asked was %q", server.Holders("default"), asked)
	}
	if r := report(t, last); r.FailedUnits != "" || pid1.StartID(r.BootID).Soft() {
		t.Errorf("boot %s, failed units %q", r.BootID, r.FailedUnits)
	}
	c.cutWayTo(only.Recording, sizes)
}

// softStory returns the files of a machine for softReboots.
func softStory(t *testing.T, l *bootlab.Lab, image, lock string) []vm.TreeFile {
	t.Helper()
	two, err := bootlab.Config{
		Name: "two", Image: image, Kargs: l.Wanted().Kargs,
		Files: map[string]string{"/etc/soft/file": "two\n", "/var/lib/soft.file": "two\n"},
	}.JSON()
	if err != nil {
		t.Fatal(err)
	}
	read := func(name string) []byte {
		text, err := softFiles.ReadFile("testdata/soft/" + name)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	lines := fmt.Sprintf("mode=system\nreboot-method=soft\nfleetlock=%s\nhealth=systemd-networkd.service\n", strings.Replace(lock, "127.0.0.1", bootlab.GuestHost, 1))
	return append(bootlab.Typed("soft", "sh /var/lib/day2/story.sh "+image, "PathExists=/usr/share/os-version-b"),
		vm.TreeFile{Path: settings.Path, Mode: 0o644, Content: []byte(lines)},
		bootlab.SayingScript("/var/lib/day2/story.sh", string(read("story.sh"))),
		vm.TreeFile{Path: "/var/lib/day2/two.json", Mode: 0o600, Content: two},
		vm.TreeFile{Path: "/var/usrlocal/bin/ostree", Mode: 0o755, Content: read("ostree")},
		vm.TreeFile{Path: "/etc/systemd/system/pivot-firstboot.service.d/soon.conf", Mode: 0o644, Content: []byte("[Service]\nRestartSec=1s\n")})
}

// saidAfter returns what a machine reported after the nth soft reboot.
func saidAfter(b *vm.BootResult, n int) map[string]string {
	said := map[string]string{}
	for key, value := range bootlab.Day2Said(b) {
		if number, key, _ := strings.Cut(key, "."); number == fmt.Sprint(n) {
			said[key] = value
		}
	}
	return said
}

// logSizes notes how large the recording of the next boot is when the console first shows each of the lines.
func (c *cutter) logSizes(lines ...string) map[string]int64 {
	sizes := map[string]int64{}
	c.power.OnLine = func(line string) {
		for _, want := range lines {
			if _, seen := sizes[want]; seen || !strings.Contains(line, want) {
				continue
			}
			info, err := os.Stat(filepath.Join(c.dir, "soft", "log"))
			if err != nil {
				c.t.Error(err)
				return
			}
			sizes[want] = info.Size()
		}
	}
	return sizes
}

// cutWayTo cuts the power at flushes after the commit of a first boot, up to its proof. The next boot must be the new
// system each time, complete.
func (c *cutter) cutWayTo(r *vm.Recording, sizes map[string]int64) {
	c.t.Helper()
	from, to := r.EntriesIn(sizes["@@killed 0"]), r.EntriesIn(sizes["@@day2 1.slot free"])
	committed := filepath.Join(c.dir, "committed.img")
	if err := r.Rebuild(c.t.Context(), vm.Cut{Before: from}, committed); err != nil {
		c.t.Fatal(err)
	}
	if c.new = c.inspect(committed); c.new.Deployment != vm.StateRoot+"/deploy/"+c.lab.Guest.CommitB+".0" {
		c.t.Fatalf("after the commit, the next boot is %s", c.new.Deployment)
	}
	for i, flush := range r.Flushes() {
		if flush <= from || flush > to || i%4 != 0 {
			continue
		}
		for _, cut := range []vm.Cut{{Before: flush}, {Before: flush, Drop: true, Seed: 1}} {
			if err := c.check(cutDisk{recording: r, cut: cut}); err != nil {
				c.t.Errorf("power cut %s: %v", cut, err)
			}
			c.tried++
		}
	}
	if c.tried < 6 || c.cameUpNew != c.tried {
		c.t.Errorf("%d power cuts, after %d of them the next boot is the new system", c.tried, c.cameUpNew)
	}
	c.t.Logf("%d power cuts between the commit and the proof", c.tried)
}
