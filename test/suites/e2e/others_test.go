package e2e_test

import (
	"bytes"
	"path"
	"regexp"
	"strings"
	"testing"
	"time"

	"machine-pivot/firstboot"
	"machine-pivot/test/worlds/bootlab"
	"machine-pivot/test/worlds/vm"
)

// Properties of a machine on its first boot, all of which a Fedora CoreOS has. The units are slow that end Ignition's
// first boot, and that read its network arguments. systemd has no ID yet, its presets enable nothing, /boot is
// read-only, somebody has edited the boot entry, and GRUB asks for a password.
const (
	slowly = `[Unit]
DefaultDependencies=no
ConditionPathExists=/boot/ignition.firstboot
After=local-fs.target
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/sh -ec 'sleep 20; mount -o remount,rw /boot; rm /boot/ignition.firstboot; mount -o remount,ro /boot; echo "@@Ignition is over"'
StandardOutput=journal+console
`
	readOnlyBoot = `[Unit]
DefaultDependencies=no
Before=sysinit.target
[Service]
Type=oneshot
ExecStart=/bin/mount -o remount,ro /boot
`
	// What the guest's own units need; then as in Fedora.
	fewPresets = "enable pivot-*\nenable kubelet.service\nenable boot-report.service\nenable systemd-networkd*\nenable ostree-*\ndisable *\n"
	inEntry    = "$ignition_firstboot"
	forNetwork = "ip=10.0.2.15::10.0.2.2:255.255.255.0::eth0:none"
)

// editEntry adds an argument to a machine's boot entry as rdcore does, and keys.
func editEntry(t *testing.T, m *vm.Machine, keys ...string) {
	t.Helper()
	script := `sed -i -e 's/^options \(.*\)/options \1 behind=ostree/' -e '$a` + strings.Join(keys, `\n`) + `' loader/entries/*.conf; grep -q 'ostree=.* behind=' loader/entries/*.conf`
	if err := m.ChangeBoot(t.Context(), script); err != nil {
		t.Fatal(err)
	}
}

func enabledUnit(name, text, by string) []vm.TreeFile {
	const dir = "/etc/systemd/system/"
	return []vm.TreeFile{
		{Path: dir + name, Mode: 0o644, Content: []byte(text)},
		{Path: dir + by + ".wants/" + name, Symlink: "../" + name},
	}
}

// amongOthers is a first boot beside the first boots of others, with all of that at once. The machine reboots once, when
// the others have ended: into a system with the same ID, and with the same entry but for what was asked for.
func amongOthers(t *testing.T, l *bootlab.Lab) {
	want := l.Wanted()
	files := append(readsSignal(), enabledUnit("coreos-ignition-firstboot-complete.service", slowly, "sysinit.target")...)
	files = append(files, enabledUnit("boot-read-only.service", readOnlyBoot, "sysinit.target")...)
	files = append(files,
		vm.TreeFile{Path: "/boot/ignition.firstboot", Mode: 0o644, Content: []byte("set ignition_network_kcmdline='" + forNetwork + "'\n")},
		vm.TreeFile{Path: "/etc/machine-id", Mode: 0o444, Content: []byte("uninitialized\n")},
		vm.TreeFile{Path: "/etc/systemd/system-preset/00-few.preset", Mode: 0o644, Content: []byte(fewPresets)},
	)
	m := provisioned(t, l, want, bootlab.Setup{Layout: redHat(t), Files: files, KernelArgs: []string{inEntry, "systemd.firstboot=off"}})
	keys := []string{"grub_users root", "grub_arg --unrestricted"}
	editEntry(t, m, keys...)

	first := boot(t, m, vm.BootOptions{ExtraArgs: []string{"ignition.firstboot", forNetwork}})
	expectPivot(t, first)
	if !first.Said("@@Ignition is over") {
		t.Error("the machine has rebooted before Ignition's first boot was over")
	}
	if _, err := m.ReadFile("/boot/ignition.firstboot"); err == nil {
		t.Error("the next boot runs Ignition again")
	}
	ids := machineIDs(t, m)
	for deployment, id := range ids {
		if !machineID.MatchString(id) || id != ids[path.Base(vm.StateRoot+"/deploy/"+l.Guest.CommitA+".0")] {
			t.Errorf("%s has the machine ID %q", deployment, id)
		}
	}
	second := boot(t, m, vm.BootOptions{})
	expectArrived(t, second, want)
	if n := count(second, isOver); first.Said(isOver) || n != 1 {
		t.Errorf("others take the first boot for over: in the old system %v, in the new one %d times", first.Said(isOver), n)
	}
	for deployment, id := range machineIDs(t, m) {
		if id != ids[deployment] {
			t.Errorf("%s has got another machine ID: %q, not %q", deployment, id, ids[deployment])
		}
	}
	expectEntry(t, m, keys...)
}

// othersFail is a first boot beside one of another program that fails in its unit. The machine does not reboot, kubelet is held,
// and the console names the unit. When somebody has done the work of the unit, the first boot continues by itself.
func othersFail(unit, repair string, files ...vm.TreeFile) func(*testing.T, *bootlab.Lab) {
	return func(t *testing.T, l *bootlab.Lab) {
		want := l.Wanted()
		// It waits for a message, since the unit has more than one attempt.
		repairs := "[Unit]\nConditionPathExists=" + firstboot.EncapsulatedPath + "\n[Service]\nType=oneshot\nStandardOutput=journal+console\n" +
			"ExecStart=/bin/sh -ec 'until journalctl -q -b -u pivot-firstboot.service | grep -q \"error: .*cannot leave .*" + unit + "\"; do sleep 1; done; " +
			"systemctl -q is-active kubelet || echo @@held; " + repair + "'\n"
		files := append(files, enabledUnit("repair.service", repairs, "sysinit.target")...)
		m := machineWith(t, l, bootlab.Setup{Encapsulated: encapsulated(t, want), Files: files, KernelArgs: []string{"systemd.firstboot=off"}})

		first := boot(t, m, vm.BootOptions{ExtraArgs: []string{"ignition.firstboot"}, Limits: vm.Limits{Idle: 10 * time.Minute}})
		expectPivot(t, first)
		if held, commit := indexOf(first, "@@held"), indexOf(first, "phase committed"); held < 0 || commit < held {
			t.Errorf("kubelet was held in line %d of the console, and the commit began in line %d", held, commit)
		}
		second := boot(t, m, vm.BootOptions{})
		if r := expectWhole(t, second, want); r.Encapsulated || !r.Closed {
			t.Error("the first boot is not closed")
		}
		for deployment, id := range machineIDs(t, m) {
			if !machineID.MatchString(id) {
				t.Errorf("%s has the machine ID %q", deployment, id)
			}
		}
	}
}

// ignitionFails and systemdFails are those of which a machine of Fedora CoreOS has two.
func ignitionFails(t *testing.T, l *bootlab.Lab) {
	const unit = "coreos-ignition-firstboot-complete.service"
	files := enabledUnit(unit, "[Unit]\nDefaultDependencies=no\nConditionPathExists=/boot/ignition.firstboot\n[Service]\nType=oneshot\nExecStart=/bin/false\n", "sysinit.target")
	othersFail(unit, "rm /boot/ignition.firstboot", append(files, vm.TreeFile{Path: "/boot/ignition.firstboot", Mode: 0o644})...)(t, l)
}

func systemdFails(t *testing.T, l *bootlab.Lab) {
	const unit = "systemd-machine-id-commit.service"
	othersFail(unit, "systemd-machine-id-setup --commit",
		vm.TreeFile{Path: "/etc/systemd/system/" + unit + ".d/fails.conf", Mode: 0o644, Content: []byte("[Service]\nExecStart=\nExecStart=/bin/false\n")},
		vm.TreeFile{Path: "/etc/machine-id", Mode: 0o444, Content: []byte("uninitialized\n")},
		vm.TreeFile{Path: "/etc/systemd/system-preset/00-few.preset", Mode: 0o644, Content: []byte(fewPresets)})(t, l)
}

var machineID = regexp.MustCompile(`^[0-9a-f]{32}\n$`)

// machineIDs returns the content of each deployment's /etc/machine-id, by the name of the deployment's directory.
func machineIDs(t *testing.T, m *vm.Machine) map[string]string {
	t.Helper()
	all, err := m.Deployments()
	if err != nil || len(all) != 2 {
		t.Fatalf("the deployments are %q, %v", all, err)
	}
	ids := map[string]string{}
	for _, d := range all {
		id, err := m.ReadFile(d + "/etc/machine-id")
		if err != nil {
			t.Error(err)
		}
		ids[path.Base(d)] = string(id)
	}
	return ids
}

// expectEntry checks what the new system's boot entry has of the old one's, and its keys.
func expectEntry(t *testing.T, m *vm.Machine, keys ...string) {
	t.Helper()
	entries, err := m.BootEntries(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	text, err := m.ReadFile("/boot/loader/entries/" + entries[0].File)
	if err != nil {
		t.Fatal(err)
	}
	for _, kept := range append(keys, inEntry, " behind=ostree") {
		if !strings.Contains(string(text), kept) {
			t.Errorf("the next entry lacks %q: %s", kept, text)
		}
	}
	if strings.Contains(string(text), "ip=10") || strings.Contains(string(text), " ignition.firstboot") {
		t.Errorf("the next entry has arguments of the first boot: %s", text)
	}
}

// count returns how many lines of the console have a text.
func count(b *vm.BootResult, text string) (n int) {
	for _, l := range b.Serial {
		if strings.Contains(l.Text, text) {
			n++
		}
	}
	return n
}

// repairedInPlace is a machine that is what is asked for, with a MachineConfig that is refused. When somebody has
// corrected it, the first boot is closed without a reboot, and kubelet starts, although its job has failed by then.
func repairedInPlace(t *testing.T, l *bootlab.Lab) {
	want := l.Wanted()
	asked := encapsulated(t, want)
	wrong := bytes.Replace(asked, []byte(`"fips":false`), []byte(`"fips":"wrong"`), 1)
	files := append(want.PinningFiles(), vm.TreeFile{Path: "/etc/right.json", Mode: 0o644, Content: asked})
	files = append(files, bootlab.Typed("repair", "cp /etc/right.json "+firstboot.EncapsulatedPath+`; systemctl restart pivot-firstboot; echo "@@repaired"`, "PathExists="+firstboot.EncapsulatedPath)...)
	m := machineWith(t, l, bootlab.Setup{Image: want.Image, KernelArgs: want.Kargs, Encapsulated: wrong, Files: files})
	only := boot(t, m, vm.BootOptions{})
	if !only.Said("$.spec.fips") || !only.Said("@@repaired") {
		t.Error("it was not refused, or not repaired")
	}
	expectArrived(t, only, want)
}
