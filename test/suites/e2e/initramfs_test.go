package e2e_test

import (
	"strings"
	"testing"
	"time"

	"machine-pivot/internal/settings"
	"machine-pivot/test/tools/need"
	"machine-pivot/test/worlds/bootlab"
	"machine-pivot/test/worlds/vm"
)

// Console lines that a guest's system shows when it starts, after the initramfs.
const (
	systemA = "Welcome to Guest A.1!"
	systemB = "Welcome to Guest B.2!"
)

// aside is the beginning of pivot's message that it leaves the first boot to the system.
const aside = "stepping aside for the started system: "

// redHat returns RHCOS's disk layout.
func redHat(t *testing.T) vm.Layout {
	t.Helper()
	layout := vm.Layout{Root: vm.XFS, SeparateBoot: true}
	if missing := layout.Missing(); len(missing) > 0 {
		need.Lacking(t, "cannot make such a disk here: lacking "+strings.Join(missing, ", "))
	}
	return layout
}

// modes (P41) runs the main job in the system and in the initramfs and logs how long each took. The
// machine that pivots in the system then boots the old system once and the new one again.
func modes(t *testing.T, l *bootlab.Lab) {
	layout := redHat(t)
	type times struct{ reboot, proof time.Duration }
	took := map[settings.Mode]times{}
	for _, mode := range []settings.Mode{settings.ModeSystem, settings.ModeInitramfs} {
		t.Run(string(mode), func(t *testing.T) {
			want := l.Wanted()
			m := provisioned(t, l, want, bootlab.Setup{Layout: layout, Mode: settings.ModeInitramfs})
			var arguments []string
			if mode == settings.ModeSystem {
				arguments = []string{"pivot.mode=system"}
			}
			first := boot(t, m, vm.BootOptions{ExtraArgs: arguments})
			expectPivot(t, first)
			expectPivotIn(t, first, mode)
			second := boot(t, m, vm.BootOptions{ExtraArgs: arguments})
			expectArrived(t, second, want)
			expectProven(t, m, want)
			expectNetworkKept(t, m, vm.StateRoot+"/deploy/"+l.Guest.CommitB+".0")
			if !second.Said(systemB) {
				t.Errorf("the new system did not say %q", systemB)
			}
			if mode == settings.ModeSystem {
				takenBack(t, l, m)
				expectTarget(t, boot(t, m, vm.BootOptions{}), want)
			}
			took[mode] = times{first.Duration, first.Duration + at(t, second, "pivot: first boot closed")}
		})
	}
	t.Logf("%-10s %14s %14s", "mode", "to the reboot", "to the proof")
	for _, mode := range []settings.Mode{settings.ModeSystem, settings.ModeInitramfs} {
		t.Logf("%-10s %12.1f s %12.1f s", mode, took[mode].reboot.Seconds(), took[mode].proof.Seconds())
	}
}

// expectNetworkKept (P47) checks that the new system's deployment has the file that the initramfs
// writes to the system's /etc before switching root, as a first boot does with network settings. By then the network had
// stopped, which the unit's file orders.
func expectNetworkKept(t *testing.T, m *vm.Machine, deployment string) {
	t.Helper()
	if text, err := m.ReadFile(deployment + "/etc/network-handed-over"); err != nil || string(text) != "kept\n" {
		t.Errorf("the network was handed over: %q, %v; want that it was down by then", text, err)
	}
}

// expectPivotIn checks that pivot worked only in the system or only in the initramfs, as the mode
// says.
func expectPivotIn(t *testing.T, b *vm.BootResult, mode settings.Mode) {
	t.Helper()
	started := indexOf(b, systemA)
	first := indexOf(b, "pivot: read: ")
	switch {
	case first < 0:
		t.Error("pivot did not say what it reads")
	case mode == settings.ModeInitramfs && started >= 0:
		t.Error("the old system was started")
	case mode == settings.ModeSystem && (started < 0 || first < started):
		t.Error("pivot worked before the system was started")
	}
}

// expectAside checks that pivot stepped aside in the initramfs for the given reason and that the
// system was started after that.
func expectAside(t *testing.T, b *vm.BootResult, reason string) {
	t.Helper()
	said := indexOf(b, aside)
	if said < 0 || indexOf(b, systemA) < said {
		t.Fatalf("the initramfs did not step aside before the system started: line %d, %d", said, indexOf(b, systemA))
	}
	if !strings.Contains(b.Serial[said].Text, reason) {
		t.Errorf("the initramfs stepped aside with %q, want the reason %q", b.Serial[said].Text, reason)
	}
}

// expectStopped boots a machine that must stop in the initramfs and show the causes on its console.
func expectStopped(t *testing.T, m *vm.Machine, causes []string) {
	t.Helper()
	b, err := m.Boot(t.Context(), vm.BootOptions{})
	if b.Exit != vm.Emergency || b.Said(systemA) {
		t.Fatalf("the machine %s, system started: %v, want that it stops in the initramfs (%v)", b.Exit, b.Said(systemA), err)
	}
	for _, cause := range causes {
		if !b.Said(cause) {
			t.Errorf("the console does not name %s", cause)
		}
	}
	t.Logf("stopped after %.1f s", b.Duration.Seconds())
}

// noNetwork boots a machine without a network device.
func noNetwork(t *testing.T, l *bootlab.Lab) {
	m := machineWith(t, l, bootlab.Setup{Encapsulated: encapsulated(t, l.Wanted()), Mode: settings.ModeInitramfs})
	first := boot(t, m, vm.BootOptions{
		ExtraArgs: []string{"module_blacklist=virtio_net"},
		StopWhen:  func(line string) bool { return strings.Contains(line, systemA) },
	})
	expectAside(t, first, "there is no network device")
	t.Logf("stepped aside after %.1f s", at(t, first, aside).Seconds())
}

// earlyPowerCuts (P25, P41) is like powerCuts for a pivot in the initramfs, on a disk with RHCOS's layout, to an image
// of a container build without an ostree commit.
func earlyPowerCuts(t *testing.T, l *bootlab.Lab) {
	amount := cuts{flush: 4, random: 6, least: 25}
	if long() {
		amount = cuts{flush: 1, random: 200, boots: 6, least: 400}
	}
	early := bootlab.Setup{Layout: redHat(t), Mode: settings.ModeInitramfs}
	t.Run("plain", func(t *testing.T) {
		image, err := l.Plain(t.Context(), 30)
		if err != nil {
			t.Fatal(err)
		}
		c := newCutter(t, l, cutImage{reference: image, built: true}, early)
		first := c.recordFirst()
		second := boot(t, c.machine, vm.BootOptions{})
		expectArrived(t, second, c.want)
		expectMerged(t, second, 1)
		expectProven(t, c.machine, c.want)
		expectNetworkKept(t, c.machine, c.new.Deployment)
		c.cut(amount, first)
	})
	if long() {
		t.Run("undivided", func(t *testing.T) {
			c := newCutter(t, l, cutImage{reference: l.Image}, early)
			c.cut(amount, c.recordFirst())
		})
	}
}

// indexOf returns the index of the first console line that contains text, or -1.
func indexOf(b *vm.BootResult, text string) int {
	for i, line := range b.Serial {
		if strings.Contains(line.Text, text) {
			return i
		}
	}
	return -1
}

// at returns when the console first showed text, since power-on.
func at(t *testing.T, b *vm.BootResult, text string) time.Duration {
	t.Helper()
	i := indexOf(b, text)
	if i < 0 {
		t.Fatalf("the console does not say %q", text)
	}
	return b.Serial[i].At
}
