package lab

import (
	"cmp"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"path/filepath"
	"slices"

	"machine-pivot/firstboot"
	"machine-pivot/internal/host"
	"machine-pivot/test/registry"
	"machine-pivot/test/vm"
)

// access are the files that let a guest trust the registry and log in to it.
func (l *Lab) access() []vm.TreeFile { return l.accessAs(l.Registry.HostAs(GuestHost)) }

// accessAs is access for who reaches the registry under another name.
func (l *Lab) accessAs(host string) []vm.TreeFile { return Access(l.Registry, host) }

// Access are the files that let a machine trust a registry, which it reaches under a name,
// and log in to it.
func Access(to *registry.Registry, host string) []vm.TreeFile {
	return []vm.TreeFile{
		{Path: "/etc/containers/certs.d/" + host + "/ca.crt", Mode: 0o644, Content: to.CA()},
		{Path: "/var/lib/kubelet/config.json", Mode: 0o600, Content: to.PullSecret(host)},
	}
}

// Setup is what a machine that boots A is before its first boot.
type Setup struct {
	Encapsulated []byte        // the encapsulated MachineConfig; nil: it is among the files
	Files        []vm.TreeFile // as Ignition has left them
	Layout       vm.Layout
	KernelArgs   []string
	Mode         host.Mode // where the first boot is done; "": ModeSystem
}

// MachineWith makes a disk as it is told, and the machine that has it.
func (l *Lab) MachineWith(ctx context.Context, name string, s Setup, log io.Writer) (*vm.Machine, error) {
	return l.machine(ctx, name, l.spec(s), log)
}

// spec is the disk of a machine that is set up so.
func (l *Lab) spec(s Setup) vm.DiskSpec {
	files := l.access()
	if mode := cmp.Or(s.Mode, host.ModeSystem); mode != host.DefaultSettings().Mode {
		files = append(files, vm.TreeFile{Path: host.SettingsPath, Mode: 0o644, Content: []byte("mode=" + mode + "\n")})
	}
	if s.Encapsulated != nil {
		files = append(files, encapsulatedFile(s.Encapsulated))
	}
	files = append(files, s.Files...)
	return vm.DiskSpec{
		Files: files, Layout: s.Layout, KernelArgs: s.KernelArgs,
		// As RHCOS and Fedora CoreOS have it: /sysroot is mounted read-only.
		RepoConfig: []string{"sysroot.readonly=true"},
	}
}

// MachineAt makes a machine that already is what w asks for, and that cannot
// reach a registry.
func (l *Lab) MachineAt(ctx context.Context, name string, w Want, log io.Writer) (*vm.Machine, error) {
	encapsulated, err := w.Encapsulated()
	if err != nil {
		return nil, err
	}
	origin := fmt.Sprintf("[origin]\nrefspec=%s\ncustom-url=pivot://%s\ncustom-description=Managed by pivot\n", l.Guest.CommitB, w.Image)
	spec := vm.DiskSpec{
		Deploy: "B", KernelArgs: w.Kargs, Origin: []byte(origin),
		Files: append(w.PinningFiles(), encapsulatedFile(encapsulated)),
	}
	return l.machine(ctx, name, spec, log)
}

// MachineByHand makes a machine that boots A without any MachineConfig, on which
// somebody types a command on the first boot, and which has further files.
func (l *Lab) MachineByHand(ctx context.Context, name, command string, files []vm.TreeFile, log io.Writer) (*vm.Machine, error) {
	files = slices.Concat(l.access(), Typed("by-hand", command, "PathExists=!/etc/crio"), files)
	return l.machine(ctx, name, vm.DiskSpec{Files: files}, log)
}

// Typed are the files that make a machine run a shell command, by a unit of a name, as
// soon as it is online and its first boot is over, on boots where a condition holds: a
// systemd condition without its first word.
func Typed(name, command, condition string) []vm.TreeFile {
	unit := fmt.Sprintf(`[Unit]
After=systemd-networkd-wait-online.service pivot-firstboot.service
Wants=systemd-networkd-wait-online.service
Before=boot-report.service
Condition%s
[Service]
Type=oneshot
ExecStart=/bin/sh -ec '%s'
StandardOutput=journal+console
StandardError=journal+console
`, condition, command)
	const dir = "/etc/systemd/system/"
	return []vm.TreeFile{
		{Path: dir + name + ".service", Mode: 0o644, Content: []byte(unit)},
		{Path: dir + "multi-user.target.wants/" + name + ".service", Symlink: "../" + name + ".service"},
	}
}

func (l *Lab) machine(ctx context.Context, name string, spec vm.DiskSpec, log io.Writer) (*vm.Machine, error) {
	disk := filepath.Join(l.dir, name+".img")
	spec.KernelArgs = append(l.selinux.KernelArgs(), spec.KernelArgs...)
	if err := l.Guest.Disk(ctx, disk, spec); err != nil {
		return nil, err
	}
	return &vm.Machine{Disk: disk, Log: log}, nil
}

func encapsulatedFile(content []byte) vm.TreeFile {
	return vm.TreeFile{Path: firstboot.EncapsulatedPath, Mode: 0o644, Content: content}
}

// dataURL is content as the source of an Ignition file.
func dataURL(content []byte) string {
	return "data:text/plain;charset=utf-8;base64," + base64.StdEncoding.EncodeToString(content)
}
