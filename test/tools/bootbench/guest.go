package main

import (
	"context"
	"embed"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"

	"machine-pivot/test/worlds/vm"
)

//go:embed files
var files embed.FS

// content returns an embedded file.
func content(name string) ([]byte, error) { return files.ReadFile("files/" + name) }

// podman are the files of Debian's packages that podman needs to pull and run an image, by patterns of their names in
// the packages. A library has another version in another release, or is not needed there. The guest's system has
// everything else. On RHCOS podman is part of the OS, too.
func podman() []string {
	const libraries = "usr/lib/x86_64-linux-gnu/"
	return []string{
		"usr/bin/podman", "usr/bin/conmon", "usr/bin/crun", "usr/lib/podman/netavark",
		libraries + "libyajl.so.?", libraries + "libsubid.so.?", libraries + "libsqlite3.so.?",
	}
}

// withPodman returns what the guest's system has in addition.
func withPodman(ctx context.Context, builder vm.Builder, spec vm.GuestSpec) ([]vm.TreeFile, error) {
	packages, err := builder.Packages(ctx, spec, []string{"podman", "crun", "conmon", "netavark"}, nil)
	if err != nil {
		return nil, err
	}
	all := []vm.TreeFile{
		{Path: "/etc/hosts", Mode: 0o644, Content: []byte("127.0.0.1 localhost\n")}, // podman looks it up for each layer
		{Path: "/etc/containers/policy.json", Mode: 0o644, Content: []byte(`{"default": [{"type": "insecureAcceptAnything"}]}`)},
		{Path: "/etc/containers/storage.conf", Mode: 0o644, Content: []byte("[storage]\ndriver = \"overlay\"\nrunroot = \"/run/containers/storage\"\ngraphroot = \"/var/lib/containers/storage\"\n")},
		{Path: "/etc/containers/containers.conf", Mode: 0o644, Content: []byte("[engine]\ncgroup_manager = \"cgroupfs\"\nevents_logger = \"none\"\n[network]\nnetwork_backend = \"netavark\"\n")},
	}
	for _, pattern := range podman() {
		found, err := filepath.Glob(filepath.Join(packages, pattern))
		if err != nil {
			return nil, err
		}
		for _, file := range found {
			all = append(all, vm.TreeFile{Path: strings.TrimPrefix(file, packages), Mode: 0o755, Source: file})
		}
	}
	return all, nil
}

// gaugeFiles returns the program that reports the memory, built in dir, with its unit in the system and in the
// initramfs.
func gaugeFiles(ctx context.Context, dir string) ([]vm.TreeFile, error) {
	program := filepath.Join(dir, "gauge")
	if out, err := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", program, "machine-pivot/test/tools/bootbench/gauge").CombinedOutput(); err != nil {
		return nil, fmt.Errorf("cannot build the gauge: %w\n%s", err, out)
	}
	const unit = "boot-gauge.service"
	service, err := content(unit)
	if err != nil {
		return nil, err
	}
	module, err := content("module-setup.sh")
	const dracut, units = "/usr/lib/dracut/modules.d/91boot-gauge/", "/usr/lib/systemd/system/"
	return []vm.TreeFile{
		{Path: "/usr/libexec/boot-gauge", Mode: 0o755, Source: program},
		{Path: dracut + "module-setup.sh", Mode: 0o755, Content: module},
		{Path: dracut + unit, Mode: 0o644, Content: service},
		{Path: units + unit, Mode: 0o644, Content: service},
		{Path: units + "sysinit.target.wants/" + unit, Symlink: "../" + unit},
	}, err
}

// today returns the files of today's way on a disk: its scripts and units, and their settings.
func today(settings string, configs []vm.TreeFile) ([]vm.TreeFile, error) {
	all := []vm.TreeFile{{Path: todayDir + "settings", Mode: 0o644, Content: []byte(settings)}}
	for _, name := range []string{"firstboot", "cleanup"} {
		script, err := content(name + ".sh")
		if err != nil {
			return nil, err
		}
		unit, err := content("today-" + name + ".service")
		if err != nil {
			return nil, err
		}
		service := "today-" + name + ".service"
		const units = "/etc/systemd/system/"
		all = append(all, vm.TreeFile{Path: todayDir + name, Mode: 0o755, Content: script},
			vm.TreeFile{Path: units + service, Mode: 0o644, Content: unit},
			vm.TreeFile{Path: units + "multi-user.target.wants/" + service, Symlink: "../" + service})
	}
	for _, f := range configs {
		f.Path = todayDir + "files" + f.Path
		all = append(all, f)
	}
	return all, nil
}

const todayDir = "/etc/today/"
