package packaging

import (
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"machine-pivot/test/tools/need"
)

// surroundings are the units of an OpenShift host that are related to ours, reduced to their
// dependencies (machine-config-operator, templates/, August 2026). With them, a wrong After= in our
// units is an ordering cycle, which systemd reports.
var surroundings = map[string]string{
	"kubelet.service":                         service("Requires=crio.service kubelet-dependencies.target", "After=kubelet-dependencies.target"),
	"crio.service":                            service("Requires=kubelet-dependencies.target", "After=kubelet-dependencies.target", "After=network-online.target"),
	"kubelet-dependencies.target":             unit("Requires=basic.target network-online.target", "Wants=ovs-configuration.service"),
	"firstboot-osupdate.target":               unit("Requires=basic.target machine-config-daemon-firstboot.service"),
	"machine-config-daemon-pull.service":      service("After=NetworkManager-wait-online.service network.service"),
	"machine-config-daemon-firstboot.service": service("Requires=machine-config-daemon-pull.service", "After=machine-config-daemon-pull.service", "Before=kubelet-dependencies.target"),
	"network.target":                          unit(),
	"network-online.target":                   unit("After=network.target", "Wants=NetworkManager-wait-online.service nmstate-configuration.service nmstate.service"),
	"NetworkManager-wait-online.service":      service("Before=network-online.target"),
	"nodeip-configuration.service":            service("Wants=NetworkManager-wait-online.service", "After=NetworkManager-wait-online.service firstboot-osupdate.target", "Before=kubelet-dependencies.target ovs-configuration.service"),
	"nmstate-configuration.service":           service("After=NetworkManager-wait-online.service network.service nodeip-configuration.service", "Before=nmstate.service kubelet-dependencies.target ovs-configuration.service"),
	"nmstate.service":                         service("Before=network-online.target"),
	"ovs-configuration.service":               service("After=firstboot-osupdate.target NetworkManager-wait-online.service nodeip-configuration.service nmstate.service", "Before=kubelet-dependencies.target"),
	"multi-user.target":                       unit("Requires=basic.target", "Wants=kubelet.service firstboot-osupdate.target nodeip-configuration.service"),
	"basic.target":                            unit("Requires=sysinit.target", "After=sysinit.target"),
	"sysinit.target":                          unit("DefaultDependencies=no", "Wants=local-fs.target systemd-tmpfiles-setup.service systemd-sysusers.service"),
	"local-fs.target":                         unit("DefaultDependencies=no"),
	"systemd-tmpfiles-setup.service":          service("DefaultDependencies=no", "After=local-fs.target systemd-sysusers.service", "Before=sysinit.target"),
	"systemd-sysusers.service":                service("DefaultDependencies=no", "Before=sysinit.target"),
	"shutdown.target":                         unit("DefaultDependencies=no"),
	"system.slice":                            unit("DefaultDependencies=no"),
	"-.slice":                                 unit("DefaultDependencies=no"),
	"systemd-networkd-wait-online.service":    service("Before=network-online.target"),
	// Of systemd and Fedora CoreOS.
	"coreos-ignition-firstboot-complete.service": service("RequiresMountsFor=/boot"),
	"systemd-machine-id-commit.service":          service("DefaultDependencies=no", "Before=shutdown.target", "After=local-fs.target first-boot-complete.target"),
	"first-boot-complete.target":                 unit(),
	"coreos-update-ca-trust.service":             service("Before=first-boot-complete.target", "Wants=first-boot-complete.target"),
	// Of distributions of Kubernetes that run a kubelet.
	"k3s.service":           service("After=network-online.target"),
	"k3s-agent.service":     service("After=network-online.target"),
	"rke2-server.service":   service("After=network-online.target"),
	"rke2-agent.service":    service("After=network-online.target"),
	"k0scontroller.service": service("After=network-online.target"),
	"k0sworker.service":     service("After=network-online.target"),
	"microshift.service":    service("After=network-online.target crio.service"),
}

func unit(lines ...string) string {
	return "[Unit]\nDescription=Stand-in\n" + strings.Join(lines, "\n") + "\n"
}

func service(lines ...string) string {
	return unit(lines...) + "[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=/usr/bin/true\n"
}

// verify lets systemd-analyze verify units in a root that has only the units and programs in it.
func verify(t *testing.T, dest string, around map[string]string, units ...string) {
	t.Helper()
	if out := analyze(t, dest, around, units...); out != "" {
		t.Errorf("systemd-analyze verify:\n%s", out)
	}
}

// analyze returns what systemd-analyze says about units; "" if it finds nothing wrong.
func analyze(t *testing.T, dest string, around map[string]string, units ...string) string {
	t.Helper()
	need.Program(t, "systemd-analyze")
	for name, text := range around {
		write(t, filepath.Join(dest, "usr/lib/systemd/system", name), text, 0o644)
	}
	for _, program := range []string{"true", "systemctl", "pivot", "nmstatectl"} {
		write(t, filepath.Join(dest, "usr/bin", program), "#!/bin/true\n", 0o755)
	}
	// man=no, because the man pages are not installed on this host. The root excludes the host's units.
	args := append([]string{"verify", "--root=" + dest, "--man=no", "--recursive-errors=yes"}, units...)
	out, err := command(t, ".", nil, "systemd-analyze", args...).CombinedOutput()
	if err != nil && len(out) == 0 {
		return err.Error()
	}
	return string(out)
}

// TestUnits verifies the units, installed and enabled, among those of an OpenShift host.
func TestUnits(t *testing.T) {
	need.Program(t, "systemctl")
	dest, units := t.TempDir(), presetUnits(t)
	run(t, root, "make", "-s", "install", "BIN="+built(t), "DESTDIR="+dest)
	run(t, ".", "systemctl", append([]string{"-q", "--root=" + dest, "preset"}, units...)...)
	module := string(read(t, filepath.Join(dest, "usr/share/selinux/packages/pivot.cil")))
	if line := `(filecon "/usr/bin/pivot" file (system_u object_r install_exec_t ((s0) (s0))))`; !strings.Contains(module, line) {
		t.Error("the SELinux module does not label the program")
	}
	verify(t, dest, surroundings, append(units, "pivot-upgrade.timer", "multi-user.target")...)
}

// TestFirstBootIsOrdered: systemd starts pivot-firstboot.service after the units that end the first boots of others, and
// before those that need its result, kubelet in all its units above all. If one of them were ordered the other way round,
// there would be a cycle.
func TestFirstBootIsOrdered(t *testing.T) {
	for other, wrong := range map[string]string{
		"coreos-ignition-firstboot-complete.service": "After",
		"systemd-machine-id-commit.service":          "After",
		"first-boot-complete.target":                 "After",
		"coreos-update-ca-trust.service":             "After",
		"pivot-nic-names.service":                    "After",
		"kubelet.service":                            "Before",
		"k3s.service":                                "Before",
		"k3s-agent.service":                          "Before",
		"rke2-server.service":                        "Before",
		"rke2-agent.service":                         "Before",
		"k0scontroller.service":                      "Before",
		"k0sworker.service":                          "Before",
		"microshift.service":                         "Before",
		"machine-config-daemon-firstboot.service":    "Before",
		"nodeip-configuration.service":               "Before",
	} {
		t.Run(other, func(t *testing.T) {
			dest := t.TempDir()
			put := func(name, text string) { write(t, filepath.Join(dest, "usr/lib/systemd/system", name), text, 0o644) }
			put("pivot-firstboot.service", string(read(t, filepath.Join(root, "systemd-units/pivot-firstboot.service"))))
			put("pivot-nic-names.service", string(read(t, filepath.Join(root, "systemd-units/pivot-nic-names.service"))))
			put(other+".d/wrong.conf", "[Unit]\n"+wrong+"=pivot-firstboot.service\nWants=pivot-firstboot.service systemd-machine-id-commit.service firstboot-osupdate.target\n")
			if out := analyze(t, dest, surroundings, other); !strings.Contains(out, "ordering cycle") {
				t.Errorf("%s=pivot-firstboot.service in %s is no ordering cycle:\n%s", wrong, other, out)
			}
		})
	}
}

// TestKubeletIsHeld: each unit that runs a kubelet requires the first boot, by the same drop-in.
func TestKubeletIsHeld(t *testing.T) {
	held := string(read(t, filepath.Join(root, "systemd-units/kubelet.service.d/10-pivot-firstboot.conf")))
	if !strings.HasSuffix(held, "[Unit]\nRequires=pivot-firstboot.service\nAfter=pivot-firstboot.service\n") {
		t.Errorf("kubelet.service has the drop-in\n%s", held)
	}
	for _, unit := range []string{"crio", "k3s", "k3s-agent", "rke2-server", "rke2-agent", "k0scontroller", "k0sworker", "microshift"} {
		if text := string(read(t, filepath.Join(root, "systemd-units", unit+".service.d/10-pivot-firstboot.conf"))); text != held {
			t.Errorf("%s.service has another drop-in:\n%s", unit, text)
		}
	}
}

// TestUnitExposure (P73) checks that the exposure level of each unit, as "systemd-analyze security" rates it
// from 0 to 10, is not above a maximum. The boot tests run the units with all settings that lower it.
// pivot-trial.service may have more, because it runs the administrator's commands.
func TestUnitExposure(t *testing.T) {
	for unit, most := range map[string]float64{"pivot-firstboot.service": 6.5, "pivot-live.service": 4.8, "pivot-nic-names.service": 5.1, "pivot-project.service": 3, "pivot-trial.service": 8.6, "pivot-slot.service": 6, "pivot-upgrade.service": 6.5, "pivot-static-pods.service": 2.8} {
		t.Run(unit, func(t *testing.T) { checkExposure(t, unit, most) })
	}
}

// TestUnitsWriteWhatBootsOnce: a unit with a program that enters a system once, or returns, can write the EFI variables
// in which the boot loader is told so.
func TestUnitsWriteWhatBootsOnce(t *testing.T) {
	for _, unit := range []string{"pivot-firstboot.service", "pivot-trial.service", "pivot-upgrade.service"} {
		text := string(read(t, filepath.Join(root, "systemd-units", unit)))
		readOnly := strings.Contains(text, "\nProtectKernelTunables=yes\n")
		if readOnly && !strings.Contains(text, "\nReadWritePaths=-/sys/firmware/efi/efivars\n") {
			t.Errorf("%s has a read-only /sys, and with it EFI variables", unit)
		}
	}
}

func checkExposure(t *testing.T, unit string, most float64) {
	need.Program(t, "systemd-analyze")
	out := run(t, root, "systemd-analyze", "security", "--offline=true", "--no-pager", "systemd-units/"+unit)
	found := regexp.MustCompile(`Overall exposure level for ` + regexp.QuoteMeta(unit) + `: ([0-9.]+) `).FindStringSubmatch(out)
	if found == nil {
		t.Fatalf("systemd-analyze tells no level:\n%s", out)
	}
	if level, err := strconv.ParseFloat(found[1], 64); err != nil || level > most {
		t.Errorf("the unit's exposure is %s, want at most %v: %v\n%s", found[1], most, err, out)
	}
}

// initrd are the units around ours in an initramfs, reduced to their dependencies: those of systemd
// (bootup(7)), Ignition and Fedora CoreOS.
var initrd = map[string]string{
	"initrd.target":               early("Requires=basic.target pivot-initramfs.service", "Wants=pivot-enter.service", "After=initrd-root-fs.target initrd-fs.target basic.target"),
	"initrd-root-fs.target":       early("After=sysroot.mount"),
	"initrd-fs.target":            early("After=initrd-parse-etc.service"),
	"initrd-parse-etc.service":    service("DefaultDependencies=no", "Requires=initrd-root-fs.target", "After=initrd-root-fs.target"),
	"initrd-cleanup.service":      service("DefaultDependencies=no", "After=initrd-root-fs.target initrd-fs.target initrd.target"),
	"initrd-switch-root.target":   early("Requires=initrd-cleanup.service", "After=initrd-cleanup.service"),
	"ostree-prepare-root.service": service("DefaultDependencies=no", "After=sysroot.mount", "Before=initrd-root-fs.target"),
	"ignition-mount.service":      service("DefaultDependencies=no", "After=initrd-root-fs.target"),
	"ignition-files.service":      service("DefaultDependencies=no", "After=ignition-mount.service", "Before=ignition-complete.target initrd-parse-etc.service"),
	"ignition-complete.target":    early("Before=initrd.target", "Requires=ignition-files.service coreos-boot-edit.service", "Conflicts=initrd-switch-root.target"),
	"coreos-boot-edit.service":    service("After=ignition-files.service"),
	"sysroot.mount":               early() + "[Mount]\nWhat=/dev/null\nWhere=/sysroot\n",
	"emergency.target":            early(),
	"basic.target":                early("Requires=sysinit.target", "After=sysinit.target"),
	"sysinit.target":              early(),
	"shutdown.target":             early(),
	"umount.target":               early(),
	"system.slice":                early(),
	"-.slice":                     early(),
}

func early(lines ...string) string {
	return unit(append([]string{"DefaultDependencies=no"}, lines...)...)
}

// TestInitramfsUnits verifies the dracut module's units among the units of an initramfs.
func TestInitramfsUnits(t *testing.T) {
	dest, units := t.TempDir(), []string{"pivot-initramfs.service", "pivot-enter.service"}
	for _, unit := range units {
		write(t, filepath.Join(dest, "usr/lib/systemd/system", unit), string(read(t, filepath.Join(root, "dracut/90pivot", unit))), 0o644)
	}
	verify(t, dest, initrd, append(units, "initrd.target", "initrd-switch-root.target", "ignition-complete.target")...)
}

// TestStartLimits: the restarts of a unit of ours never reach its start limit, because it has none, or because they are
// too far apart. So systemd always starts it again.
func TestStartLimits(t *testing.T) {
	setting := func(text, name, otherwise string) string {
		if found := regexp.MustCompile(`(?m)^` + name + `=(.*)$`).FindStringSubmatch(text); found != nil {
			return found[1]
		}
		return otherwise
	}
	seconds := func(text string) float64 {
		if n, err := strconv.ParseFloat(text, 64); err == nil {
			return n
		}
		d, err := time.ParseDuration(strings.NewReplacer("min", "m", "1d", "24h").Replace(text))
		if err != nil {
			t.Errorf("cannot read the time %q: %v", text, err)
		}
		return d.Seconds()
	}
	for _, name := range unitFiles(t) {
		text := string(read(t, name))
		if setting(text, "Restart", "no") == "no" {
			continue
		}
		interval := seconds(setting(text, "StartLimitIntervalSec", "10")) // the defaults of systemd
		burst := seconds(setting(text, "StartLimitBurst", "5"))
		if apart := seconds(setting(text, "RestartSec", "0.1")); interval > 0 && burst*apart <= interval {
			t.Errorf("%s: %v starts, %v s apart, reach the limit within %v s", name, burst, apart, interval)
		}
	}
}
