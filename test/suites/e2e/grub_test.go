package e2e_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"machine-pivot/internal/settings"
	"machine-pivot/pivot"
	"machine-pivot/test/tools/need"
	"machine-pivot/test/worlds/bootlab"
	"machine-pivot/test/worlds/vm"
)

// staticGRUB is GRUB's configuration on the machines of TestGRUB: the commands of bootupd's that matter here, in
// their order.
const staticGRUB = `load_env
if [ -f ${prefix}/user.cfg ]; then
  source ${prefix}/user.cfg
fi
set ignition_firstboot=""
if [ -f /ignition.firstboot ]; then
  source /ignition.firstboot
  set ignition_firstboot="ignition.firstboot $ignition_network_kcmdline"
fi
set timeout=1
blscfg
if [ -f $prefix/custom.cfg ]; then
  source $prefix/custom.cfg
fi
`

// adminGRUB is what the administrator's custom.cfg has. It does not end with a newline.
const adminGRUB = "set color_normal=white/black # the administrator's"

// TestGRUB (P59) tries new systems on machines that real firmware and a real GRUB boot, with a static configuration.
// The new kernel panics, hangs, has no file, or is confirmed. After each failure, the next boot is the old system, with
// nobody at the menu. One machine has UEFI with Secure Boot; two are as those of Fedora CoreOS (asFedoraCoreOS). It is
// part of "make nightly".
func TestGRUB(t *testing.T) {
	l := newLab(t, vm.GuestSpec{Suite: vm.Trixie})
	needGRUB(t)
	cases := []bootCase{
		{"UEFI with Secure Boot", func(t *testing.T) { trialsByGRUB(t, alone(t, l), grubSetup{secureBoot: true}, deaths()...) }},
		{"xfs", func(t *testing.T) { trialsByGRUB(t, alone(t, l), grubSetup{boot: vm.XFS}, deaths()...) }},
		{"ext4", func(t *testing.T) { trialsByGRUB(t, alone(t, l), grubSetup{}, deaths()...) }},
		{"as Fedora CoreOS, in the initramfs", func(t *testing.T) { asFedoraCoreOS(t, fcos(t), settings.ModeInitramfs) }},
		{"as Fedora CoreOS, in the system", func(t *testing.T) { asFedoraCoreOS(t, fcos(t), settings.ModeSystem) }},
		{"a first boot with a fallback", func(t *testing.T) { fallbackByGRUB(t, alone(t, l)) }},
	}
	together(t, cases)
}

// needGRUB skips the test if no disk can be made here that GRUB starts.
func needGRUB(t *testing.T) {
	t.Helper()
	if missing := vm.MissingGRUB(); len(missing) > 0 {
		need.Lacking(t, "cannot make a disk that starts by itself: lacking "+strings.Join(missing, ", "))
	}
}

// grubSetup is how GRUB boots a machine.
type grubSetup struct {
	boot       vm.FileSystem // of /boot; "": ext4
	layout     vm.Layout     // instead of that
	secureBoot bool          // UEFI with Secure Boot, instead of a BIOS
	trust      vm.Trust      // of the firmware
	esp        bool          // is on the machine's disk, with secureBoot
	multipath  bool          // two paths lead to the disk
}

// grubMachine is a machine that GRUB boots.
type grubMachine struct {
	*vm.Machine
	t        *testing.T
	setup    grubSetup
	firmware string // where vm.SecureBoot has its files
}

// inTurn returns the files of a unit that runs the next of some commands on each boot of the old system.
func inTurn(commands ...string) []vm.TreeFile {
	next := "n=$(cat /var/lib/next || echo 0); echo $((n + 1)) >/var/lib/next; sync; case $n in "
	for n, command := range commands {
		next += fmt.Sprintf("%d) %s ;; ", n, command)
	}
	return bootlab.Typed("next", closed+"; "+next+"esac", "KernelCommandLine=!trial.new")
}

// newGRUBMachine makes a machine that GRUB boots.
func newGRUBMachine(t *testing.T, l *bootlab.Lab, g grubSetup, s bootlab.Setup) grubMachine {
	t.Helper()
	if s.Layout = g.layout; !s.Layout.SeparateBoot {
		s.Layout = vm.Layout{SeparateBoot: true, Boot: g.boot, ESP: g.esp}
	}
	if missing := s.Layout.Missing(); len(missing) > 0 {
		need.Lacking(t, "cannot make such disks here: lacking "+strings.Join(missing, ", "))
	}
	s.Files = append(s.Files,
		vm.TreeFile{Path: vm.StaticGRUB, Mode: 0o600, Content: []byte(staticGRUB)},
		vm.TreeFile{Path: "/boot/grub2/custom.cfg", Mode: 0o600, Content: []byte(adminGRUB)},
	)
	m := grubMachine{Machine: machineWith(t, l, s), t: t, setup: g}
	var err error
	if g.secureBoot {
		if missing := vm.MissingUEFI(); len(missing) > 0 {
			need.Lacking(t, "cannot boot with Secure Boot here: lacking "+strings.Join(missing, ", "))
		}
		m.firmware = filepath.Join(t.TempDir(), "firmware")
		if m.Extra, err = vm.SecureBoot(m.firmware, g.trust); err == nil && g.esp {
			err = vm.InstallESP(t.Context(), m.Disk, m.firmware)
		} else {
			m.Extra = append(m.Extra, vm.ESPDisk(m.firmware)...)
		}
	} else {
		err = vm.InstallStaticGRUB(t.Context(), m.Disk)
	}
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// boot powers the machine on. A panic ends it as a power cut would.
func (m grubMachine) boot(want vm.Reason, says string) *vm.BootResult {
	m.t.Helper()
	return m.bootWith(vm.BootOptions{}, want, says)
}

// cut powers the machine on and cuts the power when it says something.
func (m grubMachine) cut(says string) {
	m.t.Helper()
	m.bootWith(vm.BootOptions{StopWhen: func(line string) bool { return strings.Contains(line, says) }}, vm.Stopped, says)
}

func (m grubMachine) bootWith(o vm.BootOptions, want vm.Reason, says string) *vm.BootResult {
	m.t.Helper()
	if m.setup.secureBoot {
		if err := m.WriteGRUBMenu(m.t.Context()); err != nil {
			m.t.Fatal(err)
		}
	}
	installed := vm.Installed{Disk: m.Disk, Log: testLog{m.t}, Extra: m.Extra, Multipath: m.setup.multipath}
	b, err := installed.Boot(m.t.Context(), o)
	if b.Exit != want || !b.Said(says) {
		file, kerr := b.Keep()
		m.t.Fatalf("%v: the machine %s, want that it %s and that it says %q; its console is in %s (%v)", err, b.Exit, want, says, file, kerr)
	}
	return b
}

// expectHook checks whether the hook is there, and the entry that it would start.
func (m grubMachine) expectHook(there bool, entry string) {
	m.t.Helper()
	text, err := m.ReadFile("/boot/grub2/custom.cfg")
	if err != nil {
		m.t.Fatal(err)
	}
	if !strings.HasPrefix(string(text), adminGRUB) || there != (string(text) != adminGRUB) {
		m.t.Errorf("custom.cfg is %q, want the hook in it: %v", text, there)
	}
	block, err := m.ReadFile("/boot/grub2/pivot.env")
	if there != (err == nil) || entry != "" && !strings.Contains(string(block), "="+entry) || entry == "" && strings.Contains(string(block), "=ostree") {
		m.t.Errorf("the hook's block is %.200q (%v), want %q in it", block, err, entry)
	}
}

// death is how a new system is dead.
type death struct {
	flags  string              // of the command that tries it
	change string              // a script of sed for its boot entry
	happen func(m grubMachine) // boots it until the power is cut; nil: GRUB itself starts the old system
}

// deaths are those after which no watchdog is needed.
func deaths() []death {
	return []death{
		{
			flags:  "--append-karg initcall_blacklist=populate_rootfs --append-karg panic=1 ",
			happen: func(m grubMachine) { m.boot(vm.Panicked, "Kernel panic") },
		},
		{change: hangs, happen: func(m grubMachine) { m.cut(hasHung) }},
		{change: `s/^linux .*/linux \/missing/`},
	}
}

// hangs has the initramfs of the new system wait for somebody to type something. pivot itself refuses such an
// argument.
const (
	hangs   = `s/^options .*/& rdinit=\/bin\/sh/`
	hasHung = "Run /bin/sh as init process"
)

// changeNew changes the new system's boot entry.
func (m grubMachine) changeNew(script string) {
	m.t.Helper()
	if err := m.ChangeBoot(m.t.Context(), "sed -i '"+script+"' $(grep -l trial.new loader/entries/*.conf)"); err != nil {
		m.t.Fatal(err)
	}
}

// neverUp is what the old system says of a new one that has not come up.
const neverUp = "failed its trial: it never came up"

// trialsByGRUB tries new systems that are dead, and then one that is confirmed.
func trialsByGRUB(t *testing.T, l *bootlab.Lab, g grubSetup, dead ...death) {
	try := "pivot rebase " + l.Wanted().Image + " --append-karg trial.new --try=1h "
	var commands []string
	for _, d := range dead {
		commands = append(commands, try+d.flags)
	}
	m := newGRUBMachine(t, l, g, bootlab.Setup{Files: inTurn(append(commands, try+"--confirm=auto")...)})
	says := "booted once, by a hook in GRUB"
	for _, d := range dead {
		expectSaid(t, m.boot(vm.Rebooted, says), "this machine has no hardware watchdog") // the next try, in the old system
		m.expectHook(true, "ostree-")
		m.changeNew(d.change)
		if d.happen != nil {
			d.happen(m)
			m.expectHook(true, "")
		}
		says = neverUp
	}
	b := m.boot(vm.Rebooted, says)
	expectSaid(t, b, "/missing") // GRUB has tried it
	if g.secureBoot {
		expectSaid(t, b, "Secure boot enabled")
	}
	m.expectHook(true, "ostree-")
	m.boot(vm.PoweredOff, "the new system is confirmed")
	m.expectHook(false, "")
	expectNew(t, m.boot(vm.PoweredOff, "@@reported"))
}

// expectNew checks a machine that has confirmed the new system.
func expectNew(t *testing.T, b *vm.BootResult) {
	t.Helper()
	r := report(t, b)
	if r.Version != "B.2" || !strings.Contains(r.Cmdline, "trial.new") || r.Status.Phase != string(pivot.PhaseDone) || r.FailedUnits != "" {
		t.Errorf("version %s, command line %q, status %+v, failed units %q", r.Version, r.Cmdline, r.Status, r.FailedUnits)
	}
}

// fallbackByGRUB runs a first boot in the initramfs, with the setting fallback=auto, and loses the power when
// the new system has started. The next boot is the old system, which tries again; the new system becomes the
// default when it is proven.
func fallbackByGRUB(t *testing.T, l *bootlab.Lab) {
	want := l.Wanted()
	m := newGRUBMachine(t, l, grubSetup{}, bootlab.Setup{
		Encapsulated: encapsulated(t, want), Mode: settings.ModeInitramfs, KernelArgs: []string{"pivot.fallback=auto"},
	})
	m.boot(vm.Rebooted, "rebooting into the new system once")
	m.expectHook(true, "ostree-")
	m.cut("systemd[1]: Hostname set to")
	m.expectHook(true, "")
	m.boot(vm.Rebooted, "the new system was not proven: it never came up")
	m.expectHook(true, "ostree-")
	if r := expectWhole(t, m.boot(vm.PoweredOff, "first boot closed"), want); r.Status.Attempt != 2 || r.Encapsulated || !r.Closed {
		t.Errorf("attempt %d, want 2; the first boot is open: %v", r.Status.Attempt, r.Encapsulated || !r.Closed)
	}
	m.expectHook(false, "")
}
