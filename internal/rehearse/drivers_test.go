package rehearse_test

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"machine-pivot/internal/rehearse"
)

// TestFacts: devices are followed from a file system through partitions and what is made from several, to the bus. A
// file system is named by the mount point that says most.
func TestFacts(t *testing.T) {
	root := t.TempDir()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	device := func(dir, alias string) string {
		dir = filepath.Join(root, "sys/devices", dir)
		must(os.MkdirAll(dir, 0o755))
		if alias != "" {
			must(os.Symlink("../bus/drivers/x", filepath.Join(dir, "driver")))
			must(os.WriteFile(filepath.Join(dir, "modalias"), []byte(alias+"\n"), 0o644))
		}
		return dir
	}
	device("pci0000:00/0000:00:1f.2", "pci:ahci")
	device("pci0000:00/0000:00:1f.2/ata1/host0/target0:0:0/0:0:0:0", "scsi:t-0x00")
	disk := device("pci0000:00/0000:00:1f.2/ata1/host0/target0:0:0/0:0:0:0/block/sda/sda2", "")
	nvme := device("pci0000:00/0000:00:02.0/nvme/nvme0/nvme0n1", "")
	device("pci0000:00/0000:00:02.0", "pci:nvme")
	device("pci0000:00/0000:00:02.0/undriven", "")
	must(os.WriteFile(filepath.Join(root, "sys/devices/pci0000:00/modalias"), []byte("acpi:no driver"), 0o644))
	volume, mirror := device("virtual/block/dm-0", ""), device("virtual/block/md0", "")
	must(os.MkdirAll(filepath.Join(mirror, "md"), 0o755))
	must(os.WriteFile(filepath.Join(mirror, "md/level"), []byte("raid1\n"), 0o644))
	must(os.MkdirAll(filepath.Join(root, "sys/dev/block"), 0o755))
	must(os.MkdirAll(filepath.Join(volume, "dm"), 0o755))
	for part, of := range map[string]string{disk: volume, mirror: volume, nvme: mirror} {
		must(os.MkdirAll(filepath.Join(of, "slaves"), 0o755))
		must(os.Symlink(part, filepath.Join(of, "slaves", filepath.Base(part))))
	}
	if got := rehearse.Read(root, nil, nil); len(got.Devices) != 0 || len(got.FileSystems) != 0 {
		t.Errorf("%+v without a mount", got)
	}
	must(os.WriteFile(filepath.Join(volume, "dev"), []byte("253:0\n"), 0o644))
	must(os.WriteFile(filepath.Join(volume, "dm/uuid"), []byte("CRYPT-LUKS2-x\n"), 0o644))
	must(os.Symlink(volume, filepath.Join(root, "sys/dev/block/253:0")))
	must(os.MkdirAll(filepath.Join(root, "dev/block"), 0o755))
	must(os.WriteFile(filepath.Join(root, "dev/block/253:0"), append(make([]byte, 1024), bytes.Repeat([]byte{7}, 1024)...), 0o644))
	must(os.MkdirAll(filepath.Join(root, "proc/self"), 0o755))
	must(os.Symlink(volume, filepath.Join(root, "sys/dev/block/253:1")))
	table := "21 1 253:1 / R/boot rw - ext2 /dev/dm-0p1 rw\n22 1 0:20 / R/proc rw shared:1 - proc proc rw\n23 1 253:0 /ostree/deploy/x/deploy/y.0 R rw - ext4 /dev/dm-0 rw\n24 23 253:0 / R/sysroot rw shared:2 - ext4 /dev/dm-0 rw\n" +
		"25 23 253:0 /ostree/deploy/x/var R/var rw - ext4 /dev/dm-0 rw\n26 1 8:9 / /elsewhere rw - vfat /dev/sdz rw\n28 1 8:5 / R/var/lib/kubelet/pods/x/volume rw - ext4 /dev/sdb rw\n29 1 8:6 / R/run/media/stick rw - vfat /dev/sdc rw\n27 1 8:3 / R/boot/efi rw - vfat /dev/sda3 rw\nno line of it\n"
	must(os.MkdirAll(filepath.Join(root, "etc"), 0o755))
	must(os.WriteFile(filepath.Join(root, "etc/fstab"), []byte("# none\nserver:/x /data nfs defaults 0 0\n/dev/sdz /var/lib/a  xfs nofail,noauto,x-systemd.automount 0 0\n"+
		"/dev/sdz /never xfs noauto 0 0\n/dev/dm-0p1 /boot ext2 ro 0 0\n/dev/sdy none swap sw 0 0\n/dev/sdx /mnt auto defaults 0 0\nshort\n"), 0o644))
	must(os.WriteFile(filepath.Join(root, "proc/self/mountinfo"), []byte(strings.ReplaceAll(table, "R", root)), 0o644))
	device("pci0000:00/0000:00:03.0", "pci:card")
	device("pci0000:00/0000:00:04.0", "pci:idle")
	for card, state := range map[string]string{"0000:00:03.0/net/ens3": "up", "0000:00:04.0/net/ens4": "down"} {
		dir := device("pci0000:00/"+card, "")
		must(os.WriteFile(filepath.Join(dir, "operstate"), []byte(state+"\n"), 0o644))
		must(os.Symlink("../..", filepath.Join(dir, "device")))
		must(os.MkdirAll(filepath.Join(root, "sys/class/net"), 0o755))
		must(os.Symlink(dir, filepath.Join(root, "sys/class/net", filepath.Base(card))))
	}
	facts := rehearse.Read(root, func(alias string) []string {
		return strings.Fields(map[string]string{"pci:ahci": "ahci ahci", "dm-thin": "dm_thin_pool", "ext4": "ext4", "fs-vfat": "vfat", "fs-nfs": "nfs", "md-raid1": "raid1", "dm-crypt": "dm_crypt"}[alias])
	}, func(numbers string) []string {
		return map[string][]string{"253:0": {"thin", "crypt"}}[numbers]
	})
	var got []string
	for _, d := range facts.Devices {
		got = append(got, strings.TrimSpace(d.Below+" "+d.Alias+" "+strings.Join(d.Modules, "")))
	}
	slices.Sort(got)
	if want := []string{"/ dm-crypt dm_crypt", "/ dm-thin dm_thin_pool", "/ md-raid1 raid1", "/ pci:ahci ahci", "/ pci:nvme", "/ scsi:t-0x00", "network interface ens3 pci:card"}; !slices.Equal(got, want) {
		t.Errorf("devices %q, wanted %q", got, want)
	}
	if want := []rehearse.FileSystem{
		{At: "/", Type: "ext4", Modules: []string{"ext4"}, Superblock: bytes.Repeat([]byte{7}, 1024), On: []string{"crypt", "mdraid"}},
		{At: "/boot", Type: "ext2", Modules: []string{}, On: []string{"crypt", "mdraid"}},
		{At: "/boot/efi", Type: "vfat", Modules: []string{"vfat"}, On: []string{}},
		{At: "/data", Type: "nfs", Modules: []string{"nfs"}, On: []string{}},
		{At: "/var/lib/a", Type: "xfs", Modules: []string{}, On: []string{}},
	}; !reflect.DeepEqual(facts.FileSystems, want) {
		t.Errorf("file systems %+v", facts.FileSystems)
	}
	if want := []string{"ens3"}; !slices.Equal(facts.Interfaces, want) {
		t.Errorf("interfaces %q, wanted %q", facts.Interfaces, want)
	}
}

// TestDrivers: a device of which the new kernel knows neither the alias nor the modules that serve it today is named.
func TestDrivers(t *testing.T) {
	w := newWorld(t)
	facts := rehearse.Facts{Devices: []rehearse.Device{
		{Alias: "pci:ahci", Below: "/", Modules: []string{"ahci"}},
		{Alias: "pci:virtio", Below: "/", Modules: []string{"virtio_pci"}},
		{Alias: "pci:port", Below: "/"},
		{Alias: "pci:nvme", Below: "/boot", Modules: []string{"nvme"}},
	}}
	lost := "/ stands on a device for which the new kernel, 6.12.0, has no driver (pci:ahci, today of ahci)"
	doubtful := "warning: /boot stands on a device for which the new kernel, 6.12.0, has no driver (pci:nvme, today of nvme)"
	kernel := func(a act, files ...string) func(string) {
		return func(tree string) {
			w.put(tree, "usr/sbin/modprobe", w.actor, a)
			for _, name := range append(files, "kernel/drivers/ahci.ko") {
				name = filepath.Join(tree, "usr/lib/modules/6.12.0", name)
				w.must(os.MkdirAll(filepath.Dir(name), 0o755))
				w.must(os.WriteFile(name, []byte("x"), 0o644))
			}
		}
	}
	knows := act{Do: "modprobe", Known: []string{"virtio_pci", "pci:nvme"}} // one by name, as if it were built in
	for _, c := range []struct {
		name    string
		change  func(string)
		refused string
		notes   []string
	}{
		{"one of / is lost", kernel(knows, "vmlinuz", "initramfs.img", "modules.dep.bin"), lost, nil},
		{"one of /boot is lost", kernel(act{Do: "modprobe", Known: []string{"pci:ahci", "pci:virtio"}}, "vmlinuz", "initramfs.img", "modules.dep.bin"), "", []string{doubtful}},
		{"modprobe fails", kernel(act{Status: 1, Say: "no"}, "vmlinuz", "initramfs.img"), "", nil},
		{"no kernel", kernel(knows), "", nil},
		{"no modprobe", func(tree string) {
			kernel(knows, "vmlinuz", "initramfs.img")(tree)
			w.must(os.Remove(filepath.Join(tree, "usr/sbin/modprobe")))
		}, "", nil},
	} {
		notes, err := judged(t.Context(), w.stage(), w.commit(c.change), w.running, nil, facts)
		checkRefused(t, err, c.refused)
		if !slices.Equal(notes, c.notes) {
			t.Errorf("%s: notes:\n%s", c.name, strings.Join(notes, "\n"))
		}
	}
}
