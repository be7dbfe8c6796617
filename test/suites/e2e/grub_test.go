package e2e_test

import (
	"fmt"
	"strings"
	"testing"

	"machine-pivot/internal/host"
	"machine-pivot/pivot"
	"machine-pivot/test/tools/need"
	"machine-pivot/test/worlds/lab"
	"machine-pivot/test/worlds/vm"
)

// GRUB's files on the machines of TestGRUB. The configuration has the commands of bootupd's that
// matter here, in their order. That of the administrator does not end with a newline.
const (
	staticGRUB = `load_env
if [ -f ${prefix}/user.cfg ]; then
  source ${prefix}/user.cfg
fi
set timeout=1
blscfg
if [ -f $prefix/custom.cfg ]; then
  source $prefix/custom.cfg
fi
`
	customGRUB = "set color_normal=white/black # the administrator's"
)

// TestGRUB (P59) tries new systems on machines that the BIOS and a real GRUB boot, with a static
// configuration as bootupd's: the new kernel panics, its file is missing, and the new system is
// confirmed. After each failure, the next boot is the old system, with nobody at the menu. It is part of
// "make nightly".
func TestGRUB(t *testing.T) {
	l := newLab(t, vm.GuestSpec{Suite: vm.Trixie})
	if missing := vm.MissingGRUB(); len(missing) > 0 {
		need.Lacking(t, "cannot make a disk that starts by itself: lacking "+strings.Join(missing, ", "))
	}
	var cases []bootCase
	for _, kind := range []vm.FileSystem{vm.Ext4, vm.XFS} {
		layout := vm.Layout{SeparateBoot: true, Boot: kind}
		if missing := layout.Missing(); len(missing) > 0 {
			need.Lacking(t, "cannot make such disks here: lacking "+strings.Join(missing, ", "))
		}
		cases = append(cases, bootCase{string(kind), func(t *testing.T) { trialsByGRUB(t, alone(t, l), layout) }})
	}
	cases = append(cases, bootCase{"a first boot with a fallback", func(t *testing.T) { fallbackByGRUB(t, alone(t, l)) }})
	together(t, cases)
}

// grubMachine is a machine that GRUB boots.
type grubMachine struct {
	*vm.Machine
	t *testing.T
}

// newGRUBMachine makes a machine that runs the next of some commands on each boot of the old system.
func newGRUBMachine(t *testing.T, l *lab.Lab, layout vm.Layout, commands ...string) grubMachine {
	t.Helper()
	next := "n=$(cat /var/lib/next || echo 0); echo $((n + 1)) >/var/lib/next; sync; case $n in "
	for n, command := range commands {
		next += fmt.Sprintf("%d) %s ;; ", n, command)
	}
	return withStaticGRUB(t, l, lab.Setup{Layout: layout, Files: lab.Typed("next", closed+"; "+next+"esac", "KernelCommandLine=!trial.new")})
}

// withStaticGRUB makes a machine that GRUB boots.
func withStaticGRUB(t *testing.T, l *lab.Lab, s lab.Setup) grubMachine {
	t.Helper()
	s.Files = append(s.Files,
		vm.TreeFile{Path: vm.StaticGRUB, Mode: 0o600, Content: []byte(staticGRUB)},
		vm.TreeFile{Path: "/boot/grub2/custom.cfg", Mode: 0o600, Content: []byte(customGRUB)},
	)
	m := machineWith(t, l, s)
	if err := vm.InstallStaticGRUB(t.Context(), m.Disk); err != nil {
		t.Fatal(err)
	}
	return grubMachine{m, t}
}

// boot powers the machine on. A panic ends it as a power cut would.
func (m grubMachine) boot(want vm.Reason, says string) *vm.BootResult {
	m.t.Helper()
	installed := vm.Installed{Disk: m.Disk, Log: testLog{m.t}, Extra: m.Extra}
	b, err := installed.Boot(m.t.Context(), vm.BootOptions{})
	if b.Exit != want || !b.Said(says) {
		file, kerr := b.Keep()
		m.t.Fatalf("%v: the machine %s, want that it %s and that it says %q; its console is in %s (%v)", err, b.Exit, want, says, file, kerr)
	}
	return b
}

// expectHook checks whether the hook is there, and the entry that it would start.
func (m grubMachine) expectHook(there bool, entry string) {
	m.t.Helper()
	custom, err := m.ReadFile("/boot/grub2/custom.cfg")
	if err != nil {
		m.t.Fatal(err)
	}
	if !strings.HasPrefix(string(custom), customGRUB) || there != (string(custom) != customGRUB) {
		m.t.Errorf("custom.cfg is %q, want the hook in it: %v", custom, there)
	}
	block, err := m.ReadFile("/boot/grub2/pivot.env")
	if there != (err == nil) || entry != "" && !strings.Contains(string(block), "="+entry) || entry == "" && strings.Contains(string(block), "=ostree") {
		m.t.Errorf("the hook's block is %.200q (%v), want %q in it", block, err, entry)
	}
}

func trialsByGRUB(t *testing.T, l *lab.Lab, layout vm.Layout) {
	try := "pivot rebase " + l.Wanted().Image + " --append-karg trial.new --try=1h "
	m := newGRUBMachine(t, l, layout, try+"--append-karg initcall_blacklist=populate_rootfs --append-karg panic=1", try, try+"--confirm=auto")
	const once, never = "booted once, by a hook in GRUB", "failed its trial: it never came up"

	m.boot(vm.Rebooted, once)
	m.expectHook(true, "ostree-")
	m.boot(vm.Panicked, "Kernel panic")
	m.expectHook(true, "")

	m.boot(vm.Rebooted, never) // and the next try
	m.expectHook(true, "ostree-")
	if err := m.ChangeBoot(t.Context(), "sed -i 's/^linux .*/linux \\/missing/' $(grep -l trial.new loader/entries/*.conf)"); err != nil {
		t.Fatal(err)
	}
	b := m.boot(vm.Rebooted, never) // GRUB falls back by itself, and the last try follows
	if !b.Said("/missing") {
		t.Error("GRUB has not tried the kernel that is missing")
	}
	m.expectHook(true, "ostree-")
	m.boot(vm.PoweredOff, "the new system is confirmed")
	m.expectHook(false, "")
	r := report(t, m.boot(vm.PoweredOff, "@@reported"))
	if r.Version != "B.2" || !strings.Contains(r.Cmdline, "trial.new") || r.Status.Phase != string(pivot.PhaseDone) || r.FailedUnits != "" {
		t.Errorf("version %s, command line %q, status %+v, failed units %q", r.Version, r.Cmdline, r.Status, r.FailedUnits)
	}
}

// fallbackByGRUB runs a first boot in the initramfs, with the setting fallback=auto, and loses the power when
// the new system has started. The next boot is the old system, which tries again; the new system becomes the
// default when it is proven.
func fallbackByGRUB(t *testing.T, l *lab.Lab) {
	want := l.Wanted()
	m := withStaticGRUB(t, l, lab.Setup{
		Layout: vm.Layout{SeparateBoot: true}, Encapsulated: encapsulated(t, want), Mode: host.ModeInitramfs,
		KernelArgs: []string{"pivot.fallback=auto"},
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

// cut powers the machine on and cuts the power when it says something.
func (m grubMachine) cut(says string) {
	m.t.Helper()
	installed := vm.Installed{Disk: m.Disk, Log: testLog{m.t}}
	b, err := installed.Boot(m.t.Context(), vm.BootOptions{StopWhen: func(line string) bool { return strings.Contains(line, says) }})
	if err != nil || b.Exit != vm.Stopped {
		m.t.Fatalf("%v: the machine %s, want its power cut when it says %q", err, b.Exit, says)
	}
}
