package e2e_test

import (
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"machine-pivot/internal/ostree"
	"machine-pivot/test/worlds/bootlab"
	"machine-pivot/test/worlds/oscontainer"
	"machine-pivot/test/worlds/vm"
)

// TestMissingDrivers (P100): an image is refused if its kernel, or its initramfs, lacks the driver for the disk of /. Used all
// the same, it does not start. It is part of "make nightly".
func TestMissingDrivers(t *testing.T) {
	l := newLab(t, vm.GuestSpec{Suite: vm.Trixie})
	needGRUB(t)
	together(t, []bootCase{
		{"in the initramfs", func(t *testing.T) { initramfsLacks(t, alone(t, l)) }},
		{"in the kernel", func(t *testing.T) { kernelLacks(t, alone(t, l)) }},
		{"in a cloud kernel", cloudKernel},
	})
}

// diskDriver is the file of the driver for the machine's disk, below the kernel's directory. Its name may go on.
const diskDriver = "kernel/drivers/block/virtio_blk.ko"

func initramfsLacks(t *testing.T, l *bootlab.Lab) {
	file, initramfs := initramfsWithout(t, l, diskDriver)
	image, err := l.WithFiles(t.Context(), "initramfs", map[string]string{file: initramfs})
	noError(t, err)
	refusedAndDies(t, l, image, "initramfs", "/ stands on a device, and the new initramfs lacks its driver (virtio:")
}

// kernelLacks has a kernel as if it were built without the driver. So its initramfs does not have it, either.
func kernelLacks(t *testing.T, l *bootlab.Lab) {
	file, initramfs := initramfsWithout(t, l, diskDriver)
	files, gone := kernelWithout(t, l, path.Dir(file), diskDriver)
	files[file] = initramfs
	image, err := l.WithFiles(t.Context(), "kernel", files, gone)
	noError(t, err)
	refusedAndDies(t, l, image, "drivers", "/ stands on a device for which the new kernel, "+path.Base(path.Dir(file))+", has no driver (virtio:")
}

// retry limits how long dracut waits for a disk. Otherwise it waits for three minutes.
const retry = "rd.retry=20"

// byForce returns commands that change to an image, and then by force to it if that is refused by a name.
func byForce(image, name string) string {
	return "pivot rebase " + image + " -r || echo \"@@status $?\"; pivot rebase " + image + " --accept " + name + " -r"
}

// refusedAndDies has a machine change to an image that is refused by a name, and then accepts that. The new system waits in
// vain for its disk.
func refusedAndDies(t *testing.T, l *bootlab.Lab, image, name, says string) {
	t.Helper()
	m := newGRUBMachine(t, l, grubSetup{}, bootlab.Setup{
		Files:      inTurn(byForce(image, name)),
		KernelArgs: []string{retry},
	})
	b := m.boot(vm.Rebooted, "accepted ("+name+")")
	expectSaid(t, b, says, "@@status 78")
	m.boot(vm.Emergency, "emergency")
}

// cloudKernel has a machine with a disk on AHCI and a network card that the running kernel has drivers for, and Debian 12's cloud
// kernel has not. The machine does not start without the first. Without the other it does, so that is only a warning.
func cloudKernel(t *testing.T) {
	l := newLab(t, vm.GuestSpec{})
	builder := vm.Builder{Log: testLog{t}}
	general, _, err := l.WithKernel(t.Context(), builder, "linux-image-amd64")
	noError(t, err)
	cloud, release, err := l.WithKernel(t.Context(), builder, "linux-image-cloud-amd64")
	noError(t, err)
	m := machineWith(t, l, bootlab.Setup{
		Files:      inTurn("pivot rebase "+general+" -r", byForce(cloud, "drivers")),
		KernelArgs: []string{retry},
		SizeMiB:    3 << 10, // for three kernels
	})
	expectRebooted(t, boot(t, m, vm.BootOptions{}))
	m.DiskDevice, m.NetworkDevice = "ide-hd", "e1000e" // as on another machine
	b := boot(t, m, vm.BootOptions{})
	expectRebooted(t, b)
	without := " for which the new kernel, " + release + ", has no driver (pci:v00008086d0000"
	expectSaid(t, b, ": / stands on a device"+without+"2922", "today of ahci)", "@@status 78", "accepted (drivers)", "warning: network interface enp0s1 stands on a device"+without+"10D3", "today of e1000e)")
	if b, err := m.Boot(t.Context(), vm.BootOptions{}); b.Exit != vm.Emergency {
		t.Fatalf("with its disk on AHCI the new system %s, want that it does not start: %v", b.Exit, err)
	}
	m.DiskDevice = ""
	if r := report(t, boot(t, m, vm.BootOptions{})); r.Kernel != release || r.FailedUnits != "systemd-networkd-wait-online.service" {
		t.Errorf("with another disk, kernel %s starts, want %s; failed units %q, want that only the network is missing", r.Kernel, release, r.FailedUnits)
	}
}

func expectRebooted(t *testing.T, b *vm.BootResult) {
	t.Helper()
	if b.Exit != vm.Rebooted {
		t.Fatalf("the machine %s, want that it reboots", b.Exit)
	}
}

// initramfsWithout returns the path and the content of B's initramfs, with another name for a module's file: nothing finds it.
func initramfsWithout(t *testing.T, l *bootlab.Lab, module string) (file, content string) {
	t.Helper()
	repo, err := ostree.OpenRepo(l.Guest.BareRepo())
	noError(t, err)
	commit, err := ostree.ParseChecksum(l.Guest.CommitB)
	noError(t, err)
	files, err := repo.BootFiles(commit)
	noError(t, err)
	i := slices.IndexFunc(files, ostree.BootFile.IsInitramfs)
	whole, err := os.ReadFile(repo.FileObject(files[i].Object))
	noError(t, err)
	name := path.Join(path.Dir(files[i].Path()), module)
	if content = strings.ReplaceAll(string(whole), name, strings.TrimSuffix(name, "ko")+"no"); content == string(whole) {
		t.Fatalf("the initramfs has no %s", name)
	}
	return files[i].Path(), content
}

// kernelWithout returns the tables of B's kernel, in its directory, without a module, and the entry of a layer that removes the
// module's file. The guest's own depmod makes the tables.
func kernelWithout(t *testing.T, l *bootlab.Lab, dir, module string) (tables map[string]string, gone oscontainer.Entry) {
	t.Helper()
	tree := filepath.Join(scratch(t), "tree")
	const remove = `ostree checkout --repo="$1" "$2" "$3"; ls "$3/$4/$5"*; rm "$3/$4/$5"*; chroot "$3" depmod "${4##*/}"`
	out, err := exec.CommandContext(t.Context(), "bash", "-ec", remove, "remove", l.Guest.BareRepo(), l.Guest.CommitB, tree, dir, module).Output()
	noError(t, err)
	tables = map[string]string{}
	found, err := filepath.Glob(filepath.Join(tree, dir, "modules.*"))
	noError(t, err)
	for _, file := range found {
		content, err := os.ReadFile(file)
		noError(t, err)
		tables[path.Join(dir, filepath.Base(file))] = string(content)
	}
	if strings.Contains(tables[dir+"/modules.alias"], " virtio_blk\n") || tables[dir+"/modules.dep.bin"] == "" {
		t.Fatalf("the tables are %q", slices.Sorted(maps.Keys(tables)))
	}
	return tables, oscontainer.File(path.Join(dir, path.Dir(module), ".wh."+path.Base(strings.TrimSpace(string(out)))), "")
}
