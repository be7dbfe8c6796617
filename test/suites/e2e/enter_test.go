package e2e_test

import (
	"embed"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"machine-pivot/internal/pid1"
	"machine-pivot/internal/settings"
	"machine-pivot/pivot"
	"machine-pivot/test/worlds/bootlab"
	"machine-pivot/test/worlds/vm"
)

// TestEntering (P96) runs first boots that enter the committed system from the initramfs, beside stand-ins for
// Ignition's units. Each release of libostree runs with and without a read-only /sysroot, composefs and SELinux.
// libostree 2022.7 commits no system with SELinux in the initramfs; the first release here with composefs is 2026.4.
// Its generator, which mounts /boot, may not look at /boot/loader by Debian's policy: so with SELinux that system has
// no /boot, and nothing can be staged in it. The test is part of "make nightly".
func TestEntering(t *testing.T) {
	composefs := []vm.TreeFile{{Path: "/" + prepareRoot, Mode: 0o644, Content: []byte(composefsNeeded)}}
	whole := []enterRun{{"entered", entered}, {"staged, read-only", enteredAndStaged("true")}, {"staged, writable", enteredAndStaged("false")}}
	with := func(more ...enterRun) []enterRun { return append(slices.Clone(whole), more...) }
	for _, c := range []struct {
		name string
		spec vm.GuestSpec
		runs []enterRun
	}{
		{"2022.7", vm.GuestSpec{}, with(enterRun{"other arguments", otherArguments}, enterRun{"a foreign mount", foreignMount})},
		{"2025.2", vm.GuestSpec{Suite: vm.Trixie}, whole},
		{"2025.2, SELinux", vm.GuestSpec{Suite: vm.Trixie, SELinux: vm.Enforcing}, whole},
		{"2026.4", vm.GuestSpec{Suite: vm.Forky}, with(enterRun{"entries that count boots", countsBoots})},
		{"2026.4, SELinux", vm.GuestSpec{Suite: vm.Forky, SELinux: vm.Enforcing}, whole[:1]},
		{"2026.4, composefs", vm.GuestSpec{Suite: vm.Forky, Overlay: composefs}, whole},
	} {
		t.Run(c.name, func(t *testing.T) {
			own := bootlab.Setup{OwnOstree: len(c.spec.Overlay) > 0} // the host's ostree has no composefs
			c.spec.SameKernel = true
			c.spec.Overlay = append(slices.Clone(c.spec.Overlay), ignitionUnits(t)...)
			l := newLab(t, c.spec)
			for _, r := range c.runs {
				t.Run(r.name, func(t *testing.T) { r.run(t, l, own) })
			}
		})
	}
	t.Run("another kernel", func(t *testing.T) {
		l := newLab(t, vm.GuestSpec{Overlay: ignitionUnits(t)})
		rebooted(t, l, bootlab.Setup{KernelArgs: l.Wanted().Kargs}, "not without a reboot but by an ordinary reboot: the new system has another kernel or initramfs")
	})
}

// enterRun is a first boot on a machine with a setup that begins with s.
type enterRun struct {
	name string
	run  func(t *testing.T, l *bootlab.Lab, s bootlab.Setup)
}

//go:embed testdata/ignition testdata/entercut
var enterFiles embed.FS

// dracutModule returns the files of a dracut module in testdata.
func dracutModule(t *testing.T, name, as string) (files []vm.TreeFile) {
	t.Helper()
	dir := "testdata/" + name
	entries, err := enterFiles.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		content, err := enterFiles.ReadFile(dir + "/" + e.Name())
		if err != nil {
			t.Fatal(err)
		}
		f := vm.TreeFile{Path: "/usr/lib/dracut/modules.d/" + as + "/" + e.Name(), Mode: 0o644, Content: content}
		if path.Ext(e.Name()) == ".sh" {
			f.Mode = 0o755
		}
		files = append(files, f)
	}
	return files
}

// ignitionUnits returns stand-ins for the units of Fedora CoreOS that own mounts in the initramfs, and for the one that
// ends Ignition's first boot in the system.
func ignitionUnits(t *testing.T) []vm.TreeFile {
	t.Helper()
	const unit = "coreos-ignition-firstboot-complete.service"
	files := dracutModule(t, "ignition", "91guest-ignition")
	i := slices.IndexFunc(files, func(f vm.TreeFile) bool { return path.Base(f.Path) == unit })
	files[i].Path = "/usr/lib/systemd/system/" + unit
	return append(files, vm.TreeFile{Path: "/usr/lib/systemd/system/multi-user.target.wants/" + unit, Symlink: "../" + unit})
}

// firstBootArgs are what Ignition's first boot has on the kernel command line besides the boot entry's arguments.
func firstBootArgs(more ...string) vm.BootOptions {
	return vm.BootOptions{ExtraArgs: append([]string{"ignition.firstboot"}, more...)}
}

// enterMachine returns a machine, set up like s, that is to enter B by a method.
func enterMachine(t *testing.T, l *bootlab.Lab, name string, method settings.RebootMethod, s bootlab.Setup) *vm.Machine {
	t.Helper()
	s.Encapsulated, s.Mode = encapsulated(t, l.Wanted()), settings.ModeInitramfs
	s.Files = append(slices.Clone(s.Files), vm.TreeFile{Path: settings.Path, Mode: 0o644, Content: []byte("mode=initramfs\nreboot-method=" + method + "\n")})
	m, err := l.MachineWith(t.Context(), diskName(t)+"-"+name, s, testLog{t})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// sayMounts reports the mounts of a system.
func sayMounts() []vm.TreeFile {
	return bootlab.Typed("say-mounts", "findmnt -rno TARGET,FSTYPE,FSROOT,VFS-OPTIONS | while read -r line; do echo \"@@mount $line\"; done >/dev/ttyS1", "PathExists=/usr")
}

// entered enters B on the first boot, in the cheapest way, and then boots B in the ordinary way.
func entered(t *testing.T, l *bootlab.Lab, s bootlab.Setup) {
	t.Helper()
	want := l.Wanted()
	s.KernelArgs, s.Files = want.Kargs, sayMounts()
	m := enterMachine(t, l, "entered", settings.RebootAuto, s)
	first := boot(t, m, firstBootArgs())
	expectEntered(t, first)
	expectArrived(t, first, want)
	expectProven(t, m, want)
	expectOneBoot(t, m)
	second := boot(t, m, vm.BootOptions{})
	expectTarget(t, second, want)
	expectAsBooted(t, first, second)
	t.Logf("entered: %.1f s from power-on to kubelet; the reboot alone: %.1f s", at(t, first, "@@kubelet started").Seconds(), at(t, second, "@@kubelet started").Seconds())
}

// enteredAndStaged stages a deployment in a system that was entered, with a value of sysroot.readonly. The shutdown makes
// it the next boot.
func enteredAndStaged(readonly string) func(*testing.T, *bootlab.Lab, bootlab.Setup) {
	return func(t *testing.T, l *bootlab.Lab, s bootlab.Setup) {
		want := l.Wanted()
		s.KernelArgs, s.RepoConfig = want.Kargs, []string{"sysroot.readonly=" + readonly}
		s.Files = append(sayMounts(), bootlab.Typed("stage", "ostree admin deploy --stage --karg-append=staged.c "+l.Guest.CommitB, "KernelCommandLine=!staged.c")...)
		m := enterMachine(t, l, "staged", settings.RebootEnter, s)
		first := boot(t, m, firstBootArgs())
		expectEntered(t, first)
		expectArrived(t, first, want)
		second := boot(t, m, vm.BootOptions{})
		if r := expectTarget(t, second, want); !strings.Contains(r.Cmdline, "staged.c") {
			t.Errorf("command line %q, want that of what was staged", r.Cmdline)
		}
		expectAsBooted(t, first, second)
	}
}

// expectAsBooted checks that a system that was entered has the mounts and labels that it has when it is booted.
func expectAsBooted(t *testing.T, entered, booted *vm.BootResult) {
	t.Helper()
	if a, b := mounts(entered), mounts(booted); !slices.Equal(a, b) || len(a) == 0 {
		t.Errorf("mounts of the system that was entered:\n%s\nof the one that was booted:\n%s", strings.Join(a, "\n"), strings.Join(b, "\n"))
	}
	if a, b := report(t, entered), report(t, booted); !slices.Equal(a.Relabel, b.Relabel) || a.Enforcing != b.Enforcing {
		t.Errorf("restorecon would change %q in the system that was entered, %q in the one that was booted; enforcing %v, %v", a.Relabel, b.Relabel, a.Enforcing, b.Enforcing)
	}
}

func otherArguments(t *testing.T, l *bootlab.Lab, s bootlab.Setup) {
	rebooted(t, l, s, "by an ordinary reboot; not without a reboot, because the kernel arguments change")
}

// foreignMount has a unit that nobody knows mount something in the old system. That is seen only on the way in.
func foreignMount(t *testing.T, l *bootlab.Lab, s bootlab.Setup) {
	s.KernelArgs = l.Wanted().Kargs
	rebooted(t, l, s, "is mounted at /sysroot/usr/share, which no known unit unmounts", "guest.foreign-mount")
}

// countsBoots needs a new libostree for the disk, too.
func countsBoots(t *testing.T, l *bootlab.Lab, s bootlab.Setup) {
	s.KernelArgs, s.OwnOstree, s.RepoConfig = l.Wanted().Kargs, true, []string{"sysroot.boot-counting-tries=3"}
	rebooted(t, l, s, "counts boots")
}

// rebooted runs a first boot, with some kernel arguments of its own, that reboots into B for a reason.
func rebooted(t *testing.T, l *bootlab.Lab, s bootlab.Setup, reason string, args ...string) {
	t.Helper()
	m := enterMachine(t, l, "rebooted", settings.RebootEnter, s)
	first := boot(t, m, firstBootArgs(args...))
	expectPivot(t, first)
	expectSaid(t, first, reason)
	expectArrived(t, boot(t, m, vm.BootOptions{}), l.Wanted())
}

// expectEntered checks that the old system did not start, and the new one did in the same boot.
func expectEntered(t *testing.T, b *vm.BootResult) {
	t.Helper()
	if b.Exit != vm.PoweredOff || b.Said(systemA) || !b.Said(systemB) {
		t.Fatalf("the machine %s; old system started: %v, new one: %v", b.Exit, b.Said(systemA), b.Said(systemB))
	}
}

// expectOneBoot checks that the journal has two starts of one boot: the initramfs, and the system that it entered.
func expectOneBoot(t *testing.T, m *vm.Machine) {
	t.Helper()
	ids := bootIDs(t, m)
	if len(ids) != 2 || pid1.StartID(ids[1]) != pid1.StartID(ids[0]).IfEntered() || journal(t, m).Phase != pivot.PhaseDone {
		t.Errorf("starts %q", ids)
	}
}

// serial matches the number by which deployments of one commit differ.
var serial = regexp.MustCompile(`(/deploy/[0-9a-f]{64})\.[0-9]+`)

// mounts returns the mounts that a system has reported, sorted, without those of the boot alone.
func mounts(b *vm.BootResult) (all []string) {
	for _, line := range b.Reported {
		if mount, found := strings.CutPrefix(line, "@@mount "); found && !strings.HasPrefix(mount, "/run/credentials") {
			all = append(all, serial.ReplaceAllString(mount, "$1"))
		}
	}
	slices.Sort(all)
	return all
}
