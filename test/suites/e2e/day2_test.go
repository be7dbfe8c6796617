package e2e_test

import (
	"maps"
	"slices"
	"testing"

	"machine-pivot/test/worlds/bootlab"
	"machine-pivot/test/worlds/vm"
)

// TestDay2 (P55, P57, P58) applies one MachineConfig after another to a running machine, with and
// without a new image, and then rolls back. Each step takes one reboot, after which pivot verify
// finds no difference, and files that are no longer in the MachineConfig have the running image's
// defaults again.
func TestDay2(t *testing.T) {
	l := newLab(t, vm.GuestSpec{
		Suite: vm.Trixie, // its libostree supports "pivot rollback"
		Overlay: []vm.TreeFile{
			{Path: "/etc/day2.default", Mode: 0o644, Content: []byte("A's own\n")},
		},
		OverlayB: []vm.TreeFile{
			{Path: "/etc/day2.default", Mode: 0o644, Content: []byte("B's own\n")},
			{Path: "/usr/lib/systemd/system/day2-of-b.service", Mode: 0o644, Content: []byte(bootlab.Day2Unit)},
		},
	})
	one := bootlab.Config{
		Name: "one", Kargs: []string{"day2.one"},
		Files: map[string]string{"/etc/day2.default": "ours\n", "/etc/day2/file": "one\n", "/etc/day2/gone": "one\n"},
		Units: []bootlab.Unit{{Name: "day2-one.service", Enabled: true, Contents: bootlab.Day2Unit}},
	}
	two := bootlab.Config{
		Name: "two", Image: l.Image, Kargs: []string{"day2.two"},
		Files: map[string]string{"/etc/day2/file": "two\n", "/var/lib/day2.file": "two\n"},
		// The second unit comes from the image; the previous image does not have it.
		Units: []bootlab.Unit{{Name: "day2-two.service", Enabled: true, Contents: bootlab.Day2Unit}, {Name: "day2-of-b.service", Enabled: true}},
	}
	files, err := bootlab.Day2(day2Says, map[string]string{
		"to-one": "pivot apply -r one.json", "to-two": "pivot apply -r two.json", "back": "pivot rollback -r", "nothing": "true",
	}, one, two)
	if err != nil {
		t.Fatal(err)
	}
	m, err := l.MachineByHand(t.Context(), diskName(t), "true", files, testLog{t})
	if err != nil {
		t.Fatal(err)
	}
	// step boots the machine, checks its state, runs a command and checks that the machine reboots
	// unless the command is "nothing".
	step := func(typed string, want map[string]string) {
		t.Helper()
		b := boot(t, m, bootlab.TypedOn(typed))
		if wanted := map[bool]vm.Reason{true: vm.PoweredOff, false: vm.Rebooted}[typed == "nothing"]; b.Exit != wanted {
			t.Fatalf("typed %s: the machine %s", typed, b.Exit)
		}
		if said := bootlab.Day2Said(b); !maps.Equal(said, want) {
			t.Fatalf("typed %s: the machine says\n%v\nwant\n%v", typed, said, want)
		}
	}
	bare := map[string]string{"version": "A.1", "default": "A's own", "file": "", "gone": "", "var": "", "one": "inactive", "two": "inactive", "of-b": "inactive", "karg": "", "record": "", "verify": "same"}
	first := with(bare, "default", "ours", "file", "one", "gone", "one", "one", "active", "karg", "day2.one", "record", "one")
	second := with(bare, "version", "B.2", "default", "B's own", "file", "two", "var", "two", "two", "active", "of-b", "active", "karg", "day2.two", "record", "two")
	onB := with(first, "version", "B.2")
	step("to-one", bare)
	step("to-two", first)
	step("to-one", second)
	step("back", onB)
	step("nothing", second)
}

// with returns a copy of m in which some keys have other values.
func with(m map[string]string, pairs ...string) map[string]string {
	m = maps.Clone(m)
	for pair := range slices.Chunk(pairs, 2) {
		m[pair[0]] = pair[1]
	}
	return m
}

// day2Says prints the state of the machine.
const day2Says = `. /etc/os-release; say version $VERSION_ID
for f in file gone; do say $f $(cat /etc/day2/$f 2>/dev/null); done
say default $(cat /etc/day2.default)
say var $(cat /var/lib/day2.file 2>/dev/null)
for u in one two of-b; do say $u $(systemctl is-active day2-$u.service); done
say karg $(tr " " "\n" </proc/cmdline | grep ^day2)
say record $(grep -so "\"name\": *\"[a-z]*\"" /etc/pivot/machineconfig.json | cut -d"\"" -f4)
say verify $(pivot verify >/dev/null && echo same || echo differs)
`
