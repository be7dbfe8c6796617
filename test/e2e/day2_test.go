package e2e_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"machine-pivot/test/lab"
	"machine-pivot/test/vm"
)

// TestDay2 (P55) lets a machine that runs go from one MachineConfig to another, with a new
// image and without, and back: each time with one reboot, and what is no longer asked for
// is as the image that then runs has it.
func TestDay2(t *testing.T) {
	l := newLab(t, vm.GuestSpec{
		Suite: vm.Trixie, // its libostree can go back
		Overlay: []vm.TreeFile{
			{Path: "/etc/day2.default", Mode: 0o644, Content: []byte("A's own\n")},
		},
		OverlayB: []vm.TreeFile{
			{Path: "/etc/day2.default", Mode: 0o644, Content: []byte("B's own\n")},
		},
	})
	one := lab.Config{
		Name: "one", Kargs: []string{"day2.one"},
		Files: map[string]string{"/etc/day2.default": "ours\n", "/etc/day2/file": "one\n", "/etc/day2/gone": "one\n"},
		Units: []lab.Unit{{Name: "day2-one.service", Enabled: true, Contents: day2Unit}},
	}
	two := lab.Config{
		Name: "two", Image: l.Image, Kargs: []string{"day2.two"},
		Files: map[string]string{"/etc/day2/file": "two\n"},
		Units: []lab.Unit{{Name: "day2-two.service", Enabled: true, Contents: day2Unit}},
	}
	files := []vm.TreeFile{{Path: "/var/lib/day2/says", Mode: 0o755, Content: []byte(day2Says)}}
	for _, c := range []lab.Config{one, two} {
		config, err := c.JSON()
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, vm.TreeFile{Path: "/var/lib/day2/" + c.Name + ".json", Mode: 0o600, Content: config})
	}
	// What a boot does is said by its kernel command line, as nobody is there to type it.
	for word, command := range map[string]string{
		"to-one": "pivot apply -r /var/lib/day2/one.json", "to-two": "pivot apply -r /var/lib/day2/two.json", "back": "pivot rollback -r", "nothing": "true",
	} {
		files = append(files, lab.Typed("day2-"+word, "/var/lib/day2/says; "+command, "KernelCommandLine=typed."+word)...)
	}
	m, err := l.MachineByHand(t.Context(), diskName(t), "true", files, testLog{t})
	if err != nil {
		t.Fatal(err)
	}
	// step powers the machine on, wants it to be as a MachineConfig leaves it, and to reboot
	// if something is typed.
	step := func(typed string, want map[string]string) {
		t.Helper()
		b := boot(t, m, vm.BootOptions{ExtraArgs: []string{"typed." + typed}})
		if wanted := map[bool]vm.Reason{true: vm.PoweredOff, false: vm.Rebooted}[typed == "nothing"]; b.Exit != wanted {
			t.Fatalf("typed %s: the machine %s", typed, b.Exit)
		}
		if said := day2Said(b); !maps.Equal(said, want) {
			t.Fatalf("typed %s: the machine says\n%v\nwant\n%v", typed, said, want)
		}
	}
	bare := map[string]string{"version": "A.1", "default": "A's own", "file": "", "gone": "", "one": "inactive", "two": "inactive", "karg": "", "record": ""}
	first := with(bare, "default", "ours", "file", "one", "gone", "one", "one", "active", "karg", "day2.one", "record", "one")
	second := with(bare, "version", "B.2", "default", "B's own", "file", "two", "two", "active", "karg", "day2.two", "record", "two")
	onB := with(first, "version", "B.2")
	step("to-one", bare)
	step("to-two", first)
	step("to-one", second)
	step("back", onB)
	step("nothing", second)
}

// with is a map with other values for some keys.
func with(m map[string]string, pairs ...string) map[string]string {
	m = maps.Clone(m)
	for pair := range slices.Chunk(pairs, 2) {
		m[pair[0]] = pair[1]
	}
	return m
}

const day2Unit = "[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n"

// day2Says are lines "@@day2 KEY VALUE" on the console: what the machine is, and at last
// what is not as its MachineConfig says.
const day2Says = `#!/bin/sh
say() { echo "@@day2 $*" >/dev/console; }
. /etc/os-release; say version $VERSION_ID
for f in file gone; do say $f $(cat /etc/day2/$f 2>/dev/null); done
say default $(cat /etc/day2.default)
for u in one two; do say $u $(systemctl is-active day2-$u.service); done
say karg $(tr " " "\n" </proc/cmdline | grep ^day2)
say record $(grep -so "\"name\": *\"[a-z]*\"" /etc/pivot/machineconfig.json | cut -d"\"" -f4)
`

// day2Said is what a machine says so.
func day2Said(b *vm.BootResult) map[string]string {
	said := map[string]string{}
	for _, line := range b.Serial {
		if _, text, found := strings.Cut(line.Text, "@@day2 "); found {
			key, value, _ := strings.Cut(strings.TrimSpace(text), " ")
			said[key] = value
		}
	}
	return said
}
