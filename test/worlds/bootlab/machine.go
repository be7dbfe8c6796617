package bootlab

import (
	"cmp"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"path/filepath"
	"slices"

	"machine-pivot/firstboot"
	"machine-pivot/internal/settings"
	"machine-pivot/test/worlds/registry"
	"machine-pivot/test/worlds/vm"
)

// access returns the files with which a guest trusts the registry and logs in to it.
func (l *Lab) access() []vm.TreeFile { return l.accessAs(l.Registry.HostAs(GuestHost)) }

// accessAs is like access, for another name of the registry.
func (l *Lab) accessAs(host string) []vm.TreeFile { return Access(l.Registry, host) }

// Access returns the files with which a machine trusts a registry, which it reaches as host, and logs
// in to it.
func Access(to *registry.Registry, host string) []vm.TreeFile {
	return []vm.TreeFile{
		{Path: "/etc/containers/certs.d/" + host + "/ca.crt", Mode: 0o644, Content: to.CA()},
		{Path: "/var/lib/kubelet/config.json", Mode: 0o600, Content: to.PullSecret(host)},
	}
}

// Setup describes a machine before its first boot.
type Setup struct {
	Image        string        // that it has already, with the commit of B; "": it has A, from no image
	Encapsulated []byte        // the encapsulated MachineConfig; nil: none, or it is among the files
	Files        []vm.TreeFile // as Ignition has written them
	Layout       vm.Layout
	KernelArgs   []string
	Mode         settings.Mode // where pivot runs the first boot; "": ModeSystem
	RepoConfig   []string      // further settings of the repository, such as "ex-integrity.fsverity=yes"
	SizeMiB      int           // of the root file system; 0: as in vm.DiskSpec
	OwnOstree    bool          // the disk is made by the guest's own ostree: see vm.DiskSpec
}

// MachineWith makes a machine, with its disk, from a setup.
func (l *Lab) MachineWith(ctx context.Context, name string, s Setup, log io.Writer) (*vm.Machine, error) {
	return l.machine(ctx, name, l.spec(s), log)
}

// spec returns the spec of the disk for a setup.
func (l *Lab) spec(s Setup) vm.DiskSpec {
	files := l.access()
	if mode := cmp.Or(s.Mode, settings.ModeSystem); mode != settings.Default().Mode {
		files = append(files, vm.TreeFile{Path: settings.Path, Mode: 0o644, Content: []byte("mode=" + mode + "\n")})
	}
	if s.Encapsulated != nil {
		files = append(files, encapsulatedFile(s.Encapsulated))
	}
	files = append(files, s.Files...)
	d := vm.DiskSpec{
		Files: files, Layout: s.Layout, KernelArgs: s.KernelArgs, SizeMiB: s.SizeMiB, OwnOstree: s.OwnOstree,
		// As in RHCOS and Fedora CoreOS: /sysroot is mounted read-only.
		RepoConfig: append([]string{"sysroot.readonly=true"}, s.RepoConfig...),
	}
	if s.Image != "" {
		d.Deploy, d.Origin = "B", l.origin(s.Image)
	}
	return d
}

// origin returns the origin of a deployment of B from an image, as pivot writes it.
func (l *Lab) origin(image string) []byte {
	return fmt.Appendf(nil, "[origin]\nrefspec=%s\ncustom-url=pivot://%s\ncustom-description=Managed by pivot\n", l.Guest.CommitB, image)
}

// MachineAt makes a machine that is already at the target w and that cannot access the registry.
func (l *Lab) MachineAt(ctx context.Context, name string, w Want, log io.Writer) (*vm.Machine, error) {
	encapsulated, err := w.Encapsulated()
	if err != nil {
		return nil, err
	}
	spec := vm.DiskSpec{
		Deploy: "B", KernelArgs: w.Kargs, Origin: l.origin(w.Image),
		Files: append(w.PinningFiles(), encapsulatedFile(encapsulated)),
	}
	return l.machine(ctx, name, spec, log)
}

// MachineByHand makes a machine that boots A without a MachineConfig, runs a command on its first
// boot, and has further files.
func (l *Lab) MachineByHand(ctx context.Context, name, command string, files []vm.TreeFile, log io.Writer) (*vm.Machine, error) {
	files = slices.Concat(l.access(), Typed("by-hand", command, "PathExists=!/etc/crio"), files)
	return l.machine(ctx, name, vm.DiskSpec{Files: files}, log)
}

// Typed returns the files of a unit, name, that runs a shell command as soon as the machine is online
// and pivot-firstboot.service has ended. The unit runs only on boots in which condition holds: a
// systemd condition without the prefix "Condition", such as "PathExists=/usr".
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
	m := &vm.Machine{Disk: disk, Log: log}
	if l.Boxed {
		l.InBox(m)
	}
	return m, nil
}

func encapsulatedFile(content []byte) vm.TreeFile {
	return vm.TreeFile{Path: firstboot.EncapsulatedPath, Mode: 0o644, Content: content}
}

// dataURL returns content as a data URL, for the source of an Ignition file.
func dataURL(content []byte) string {
	return "data:text/plain;charset=utf-8;base64," + base64.StdEncoding.EncodeToString(content)
}
