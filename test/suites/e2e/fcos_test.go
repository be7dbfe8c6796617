package e2e_test

import (
	"path/filepath"
	"strings"
	"testing"

	"machine-pivot/internal/settings"
	"machine-pivot/test/worlds/bootlab"
	"machine-pivot/test/worlds/vm"
)

const (
	bootUUID = "3f1d0c52-9f0e-4d0b-8a57-0c5a4e6f1b2d"
	// mountsBoot mounts /boot as Fedora CoreOS does: read-only, from the device that the kernel command line names. The
	// timeout is that of vm.Layout.
	mountsBoot = `#!/bin/sh -e
for arg in $(cat /proc/cmdline); do case $arg in boot=UUID=*) device=/dev/disk/by-uuid/${arg#boot=UUID=} ;; esac; done
[ -n "$device" ] || exit 0
unit=$(systemd-escape --path --suffix=device "$device")
mkdir -p "$1/local-fs.target.requires" "$1/$unit.d"
printf '[Unit]\nJobRunningTimeoutSec=15min\n' >"$1/$unit.d/50-timeout.conf"
printf '[Unit]\nBefore=local-fs.target\n[Mount]\nWhat=%s\nWhere=/boot\nOptions=ro,nodev,nosuid\n' "$device" >"$1/boot.mount"
ln -s ../boot.mount "$1/local-fs.target.requires"
`
	// password is what the administrator of a GRUB sets: without grub_users or grub_arg an entry asks for it.
	password = "set superusers=\"root\"\npassword root secret\n"
)

// fcos returns a lab with composefs, as Fedora CoreOS has it.
func fcos(t *testing.T) *bootlab.Lab {
	t.Helper()
	return newLab(t, vm.GuestSpec{Suite: vm.Forky, Overlay: []vm.TreeFile{{Path: "/" + prepareRoot, Mode: 0o644, Content: []byte(composefsNeeded)}}})
}

// fromIgnition returns pivot where Ignition puts it on a machine without it, and what has the unit run that one.
func fromIgnition(l *bootlab.Lab) []vm.TreeFile {
	const program = "/var/usrlocal/bin/pivot"
	return []vm.TreeFile{
		{Path: program, Mode: 0o755, Source: filepath.Join(l.Bin(), "pivot")},
		{Path: "/etc/systemd/system/pivot-firstboot.service.d/50-ignition.conf", Mode: 0o644, Content: []byte("[Service]\nExecStart=\nExecStart=" + program + " firstboot\n")},
	}
}

// asFedoraCoreOS is a first boot of a machine with many properties of Fedora CoreOS at once. It has composefs, quotas of
// projects on XFS, and a /boot without a label that a generator mounts read-only. GRUB has a password, and takes arguments
// from Ignition's stamp. The first boots of others are slow, and pivot is where Ignition puts it. GRUB's hook starts the
// new system once. Nobody types anything.
func asFedoraCoreOS(t *testing.T, l *bootlab.Lab, mode settings.Mode) {
	want := l.Wanted()
	files := append(enabledUnit("coreos-ignition-firstboot-complete.service", slowly, "sysinit.target"),
		vm.TreeFile{Path: "/boot/ignition.firstboot", Mode: 0o644, Content: []byte("set ignition_network_kcmdline='" + forNetwork + "'\n")},
		vm.TreeFile{Path: "/etc/machine-id", Mode: 0o444, Content: []byte("uninitialized\n")},
		vm.TreeFile{Path: "/etc/systemd/system-preset/00-few.preset", Mode: 0o644, Content: []byte(fewPresets)},
		vm.TreeFile{Path: "/etc/systemd/system-generators/boot", Mode: 0o755, Content: []byte(mountsBoot)},
		vm.TreeFile{Path: "/boot/grub2/user.cfg", Mode: 0o600, Content: []byte(password)},
	)
	files = append(append(files, fromIgnition(l)...), bootlab.Typed("say-mounts", `for at in / /sysroot /boot; do echo "@@mount $(findmnt -rno TARGET,FSTYPE,OPTIONS $at | tail -n 1)"; done >/dev/ttyS1`, "PathExists=/usr")...)
	m := newGRUBMachine(t, l, grubSetup{layout: vm.Layout{Root: vm.XFS, SeparateBoot: true, BootUUID: bootUUID}}, bootlab.Setup{
		Encapsulated: encapsulated(t, want), Mode: mode, Files: files, OwnOstree: true,
		KernelArgs: []string{inEntry, "boot=UUID=" + bootUUID, "rootflags=prjquota", "pivot.fallback=auto", "systemd.firstboot=off"},
	})
	const unrestricted = "grub_arg --unrestricted"
	editEntry(t, m.Machine, unrestricted)
	o := vm.BootOptions{StopWhen: func(line string) bool { return strings.Contains(line, "Enter username") }}

	first := m.bootWith(o, vm.Rebooted, "rebooting into the new system once")
	expectPivot(t, first)
	expectPivotIn(t, first, mode)
	m.expectHook(true, "ostree-")
	second := m.bootWith(o, vm.PoweredOff, "first boot closed")
	expectArrived(t, second, want)
	m.expectHook(false, "")
	expectEntry(t, m.Machine, unrestricted)
	machineIDs(t, m.Machine)
	if mode == settings.ModeInitramfs {
		expectNetworkKept(t, m.Machine, vm.StateRoot+"/deploy/"+l.Guest.CommitB+".0")
	}
	for _, mount := range []string{"/ overlay ", "/sysroot xfs ", "prjquota", "/boot ext4 ro,"} {
		if !strings.Contains(strings.Join(mounts(second), "\n")+"\n", mount) {
			t.Errorf("the new system has the mounts %q, want %q in them", mounts(second), mount)
		}
	}
	third := m.bootWith(o, vm.PoweredOff, "@@reported") // by its own entry, which is the default now
	expectTarget(t, third, want)
}
