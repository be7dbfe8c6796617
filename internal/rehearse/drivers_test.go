package rehearse_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"machine-pivot/internal/rehearse"
)

// TestDevices: devices are followed from a file system through partitions and what is made from several, to the bus.
func TestDevices(t *testing.T) {
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
	volume := device("virtual/block/dm-0", "")
	must(os.MkdirAll(filepath.Join(root, "sys/dev/block"), 0o755))
	for part, of := range map[string]string{disk: volume, nvme: volume} {
		must(os.MkdirAll(filepath.Join(of, "slaves"), 0o755))
		must(os.Symlink(part, filepath.Join(of, "slaves", filepath.Base(part))))
	}
	for _, dir := range []string{"sysroot", "boot"} {
		must(os.MkdirAll(filepath.Join(root, dir), 0o755))
	}
	if got := rehearse.Devices(root); len(got) != 0 {
		t.Errorf("devices %v without a block device", got)
	}
	var st unix.Stat_t
	must(unix.Stat(filepath.Join(root, "sysroot"), &st))
	must(os.Symlink(volume, filepath.Join(root, "sys/dev/block", fmt.Sprintf("%d:%d", unix.Major(st.Dev), unix.Minor(st.Dev)))))
	var got []string
	for _, d := range rehearse.Devices(root) {
		got = append(got, d.Below+" "+d.Alias)
	}
	slices.Sort(got)
	if want := []string{"/ pci:ahci", "/ pci:nvme", "/ scsi:t-0x00"}; !slices.Equal(got, want) {
		t.Errorf("devices %q, wanted %q", got, want)
	}
}

// TestDrivers: a device of which the new kernel knows neither the alias nor the modules that serve it today is named.
func TestDrivers(t *testing.T) {
	w := newWorld(t)
	devices := []rehearse.Device{
		{Alias: "pci:ahci", Below: "/", Modules: []string{"ahci"}},
		{Alias: "pci:virtio", Below: "/", Modules: []string{"virtio_pci"}},
		{Alias: "pci:port", Below: "/"},
		{Alias: "pci:nvme", Below: "/boot", Modules: []string{"nvme"}},
	}
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
		notes, err := judged(t.Context(), w.stage(), w.commit(c.change), w.running, nil, devices)
		checkRefused(t, err, c.refused)
		if !slices.Equal(notes, c.notes) {
			t.Errorf("%s: notes:\n%s", c.name, strings.Join(notes, "\n"))
		}
	}
}
