package e2e_test

import (
	"embed"
	"path"
	"slices"
	"strings"
	"testing"

	"machine-pivot/internal/host"
	"machine-pivot/internal/start"
	"machine-pivot/pivot"
	"machine-pivot/test/worlds/lab"
	"machine-pivot/test/worlds/vm"
)

// TestEntering (P96) runs first boots that enter the committed system from the initramfs, without a reboot, beside
// stand-ins for Ignition's units. It is part of "make nightly".
func TestEntering(t *testing.T) {
	for _, c := range []struct {
		name string
		spec vm.GuestSpec
		runs []func(*testing.T, *lab.Lab)
	}{
		{"bookworm", vm.GuestSpec{}, []func(*testing.T, *lab.Lab){entered, enteredAndStaged, rebootedAllTheSame}},
		{"trixie", vm.GuestSpec{Suite: vm.Trixie}, []func(*testing.T, *lab.Lab){entered}},
		{"trixie, SELinux", vm.GuestSpec{Suite: vm.Trixie, SELinux: vm.Enforcing}, []func(*testing.T, *lab.Lab){entered}},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.spec.SameKernel = true
			c.spec.Overlay = append(c.spec.Overlay, ignitionUnits(t)...)
			l := newLab(t, c.spec)
			for _, run := range c.runs {
				run(t, l)
			}
		})
	}
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

// enterMachine returns a machine that is to enter B, with the kernel arguments kargs from the beginning.
func enterMachine(t *testing.T, l *lab.Lab, name string, kargs []string, files ...vm.TreeFile) *vm.Machine {
	t.Helper()
	settings := vm.TreeFile{Path: host.SettingsPath, Mode: 0o644, Content: []byte("mode=initramfs\nreboot-method=enter\n")}
	m, err := l.MachineWith(t.Context(), diskName(t)+"-"+name, lab.Setup{
		Encapsulated: encapsulated(t, l.Wanted()), KernelArgs: kargs, Mode: host.ModeInitramfs, Files: append(files, settings),
	}, testLog{t})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// sayMounts prints the mounts of a system on the console.
func sayMounts() []vm.TreeFile {
	return lab.Typed("say-mounts", "findmnt -rno TARGET,FSTYPE,FSROOT,VFS-OPTIONS | while read -r line; do echo \"@@mount $line\"; done", "PathExists=/usr")
}

// entered enters B on the first boot, and then boots B in the ordinary way: both have the same mounts and labels.
func entered(t *testing.T, l *lab.Lab) {
	t.Helper()
	want := l.Wanted()
	m := enterMachine(t, l, "entered", want.Kargs, sayMounts()...)
	first := boot(t, m, firstBootArgs())
	expectEntered(t, first)
	expectArrived(t, first, want)
	expectProven(t, m, want)
	expectOneBoot(t, m)
	second := boot(t, m, vm.BootOptions{})
	expectTarget(t, second, want)
	if a, b := mounts(first), mounts(second); !slices.Equal(a, b) || len(a) == 0 {
		t.Errorf("mounts of the system that was entered:\n%s\nof the one that was booted:\n%s", strings.Join(a, "\n"), strings.Join(b, "\n"))
	}
	if a, b := report(t, first), report(t, second); !slices.Equal(a.Relabel, b.Relabel) || a.Enforcing != b.Enforcing {
		t.Errorf("restorecon would change %q in the system that was entered, %q in the one that was booted; enforcing %v, %v", a.Relabel, b.Relabel, a.Enforcing, b.Enforcing)
	}
	t.Logf("entered: %.1f s from power-on to kubelet; the reboot alone: %.1f s", at(t, first, "@@kubelet started").Seconds(), at(t, second, "@@kubelet started").Seconds())
}

// enteredAndStaged stages a deployment in a system that was entered. The shutdown makes it the next boot.
func enteredAndStaged(t *testing.T, l *lab.Lab) {
	want := l.Wanted()
	m := enterMachine(t, l, "staged", want.Kargs,
		lab.Typed("stage", "ostree admin deploy --stage --karg-append=staged.c "+l.Guest.CommitB, "KernelCommandLine=!staged.c")...)
	first := boot(t, m, firstBootArgs())
	expectEntered(t, first)
	expectArrived(t, first, want)
	if r := expectTarget(t, boot(t, m, vm.BootOptions{}), want); !strings.Contains(r.Cmdline, "staged.c") {
		t.Errorf("command line %q, want that of what was staged", r.Cmdline)
	}
}

// rebootedAllTheSame reboots where the committed system cannot be entered, and says why.
func rebootedAllTheSame(t *testing.T, l *lab.Lab) {
	want := l.Wanted()
	for _, c := range []struct {
		name, reason string
		kargs        []string
	}{
		{"arguments", "the kernel arguments change", nil},
	} {
		m := enterMachine(t, l, c.name, c.kargs)
		first := boot(t, m, vm.BootOptions{})
		expectPivot(t, first)
		expectSaid(t, first, c.reason)
		expectArrived(t, boot(t, m, vm.BootOptions{}), want)
	}
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
	if len(ids) != 2 || start.ID(ids[1]) != start.ID(ids[0]).IfEntered() || journal(t, m).Phase != pivot.PhaseDone {
		t.Errorf("starts %q", ids)
	}
}

// mounts returns the mounts that a system has printed, sorted, without those of the boot alone.
func mounts(b *vm.BootResult) (all []string) {
	for _, line := range b.Serial {
		if _, mount, found := strings.Cut(line.Text, "@@mount "); found && !strings.HasPrefix(mount, "/run/credentials") {
			all = append(all, mount)
		}
	}
	slices.Sort(all)
	return all
}
