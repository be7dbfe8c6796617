package e2e_test

import (
	"bytes"
	"path"
	"regexp"
	"strings"
	"testing"

	"machine-pivot/firstboot"
	"machine-pivot/test/worlds/bootlab"
	"machine-pivot/test/worlds/vm"
)

// Properties of a machine on its first boot, all of which a Fedora CoreOS has: what ends Ignition's first boot is slow,
// and so is what its reader of network arguments has left; systemd has no ID yet, and its presets enable nothing; /boot
// is read-only; somebody has edited the boot entry, and GRUB asks for a password.
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
	editEntry  = `sed -i -e 's/^options \(.*\)/options \1 behind=ostree/' -e '$agrub_users root\ngrub_arg --unrestricted' loader/entries/*.conf; grep -q 'ostree=.* behind=' loader/entries/*.conf`
	inEntry    = "$ignition_firstboot"
	forNetwork = "ip=10.0.2.15::10.0.2.2:255.255.255.0::eth0:none"
)

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
	if err := m.ChangeBoot(t.Context(), editEntry); err != nil {
		t.Fatal(err)
	}

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
		if !regexp.MustCompile(`^[0-9a-f]{32}\n$`).MatchString(id) || id != ids[path.Base(vm.StateRoot+"/deploy/"+l.Guest.CommitA+".0")] {
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
	expectEntry(t, m)
}

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

// expectEntry checks what the new system's boot entry has of the old one's.
func expectEntry(t *testing.T, m *vm.Machine) {
	t.Helper()
	entries, err := m.BootEntries(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	text, err := m.ReadFile("/boot/loader/entries/" + entries[0].File)
	if err != nil {
		t.Fatal(err)
	}
	for _, kept := range []string{inEntry, " behind=ostree", "\ngrub_users root\n", "\ngrub_arg --unrestricted\n"} {
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

// repairedInPlace is a machine that is what is asked for, with a MachineConfig that is refused. When somebody has corrected
// it, the first boot is closed without a reboot, and kubelet starts, whose job has failed by then.
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
