package e2e_test

import (
	"cmp"
	"os"
	"slices"
	"strings"
	"testing"

	"machine-pivot/test/worlds/bootlab"
	"machine-pivot/test/worlds/oscontainer"
	"machine-pivot/test/worlds/vm"
)

// TestStorageOfRoot (P100): the root is on LVM, md, LUKS or multipath, or in btrfs. pivot refuses an image if the initramfs lacks something
// for that. Used all the same, such an image does not start. An image that lacks nothing starts. It is part of "make nightly".
func TestStorageOfRoot(t *testing.T) {
	needMachines(t)
	needGRUB(t)
	s := newStorage(t)
	luks := []string{"rd.luks.name=" + vm.LUKSUUID + "=root", "rd.luks.key=" + vm.LUKSUUID + "=/luks.key:LABEL=boot"}
	together(t, []bootCase{
		{"LVM", func(t *testing.T) {
			s.refused(t, grubSetup{layout: vm.Layout{On: vm.LVM}}, []string{"rd.lvm.lv=vg/root"}, s.without(t, "lvm"))
		}},
		{"RAID", func(t *testing.T) {
			s.refused(t, grubSetup{layout: vm.Layout{On: vm.RAID}}, nil, s.withoutDriver(t, "md-raid1", "raid1"))
		}},
		{"LUKS", func(t *testing.T) {
			s.refused(t, grubSetup{layout: vm.Layout{On: vm.LUKS}}, luks, s.without(t, "systemd-cryptsetup")) // but with crypt
		}},
		{"thin LVM", func(t *testing.T) {
			s.refused(t, grubSetup{layout: vm.Layout{On: vm.Thin}}, []string{"rd.lvm.lv=vg/root"}, s.withoutDriver(t, "dm-thin-pool", "dm_thin_pool"))
		}},
		{"multipath", func(t *testing.T) {
			s.refused(t, grubSetup{multipath: true}, []string{"rd.multipath=default", "root=/dev/mapper/mpatha-part2"}, s.without(t, "multipath", "guest-multipath"))
		}},
		{"one path", func(t *testing.T) {
			s.starts(t, grubSetup{multipath: true}, []string{"rd.multipath=default"}, s.without(t, "multipath", "guest-multipath"))
		}},
		{"thin LVM, not checked", func(t *testing.T) {
			s.starts(t, grubSetup{layout: vm.Layout{On: vm.Thin}}, []string{"rd.lvm.lv=vg/root"}, s.withoutPrograms(t, "/usr/sbin/thin_check", "/usr/sbin/pdata_tools"))
		}},
		{"btrfs", func(t *testing.T) {
			none := s.without(t, "btrfs")
			none.says = "/ is a file system, and the new initramfs lacks its driver (btrfs, by btrfs)"
			none.waits = "start running (3min" // without btrfs in the kernel, udev never calls the device ready
			s.refused(t, grubSetup{layout: vm.Layout{Root: vm.Btrfs}}, nil, none)
		}},
	})
}

// TestOldXFS (P100): / or /boot is in version 4 of XFS, which the kernel of a newer release does not mount. It is part of "make nightly".
func TestOldXFS(t *testing.T) {
	newer := newLab(t, vm.GuestSpec{Suite: vm.Trixie, SuiteB: vm.Forky})
	needGRUB(t)
	together(t, []bootCase{
		{"root", func(t *testing.T) { oldXFSOfRoot(t, newer) }},
		{"boot", func(t *testing.T) {
			l := alone(t, newer)
			layout := vm.Layout{SeparateBoot: true, Boot: vm.XFS, OldXFS: true}
			m := newGRUBMachine(t, l, grubSetup{layout: layout}, bootlab.Setup{Files: inTurn(byForce(l.Image, "file-systems"))})
			b := m.boot(vm.Rebooted, "accepted (file-systems)")
			expectSaid(t, b, "/boot is a file system in version 4 of XFS, which the new kernel, ", "@@status 78")
			m.boot(vm.Emergency, "emergency")
		}},
	})
}

// oldXFSOfRoot has a machine refuse the newer image, then go to one with a kernel that mounts its root, and from that to the newer
// all the same.
func oldXFSOfRoot(t *testing.T, newer *bootlab.Lab) {
	t.Helper()
	l := newLab(t, vm.GuestSpec{Suite: vm.Trixie})
	img, err := oscontainer.Encapsulated(newer.Guest.BareRepo(), newer.Guest.CommitB, oscontainer.WithLabel("ostree.bootable", "true"), oscontainer.WithWorkDir(t.TempDir()), oscontainer.WithChunks(8))
	noError(t, err)
	image, err := l.Push(t.Context(), "newer", img)
	noError(t, err)
	refusedThenForced(t, l, grubSetup{layout: vm.Layout{Root: vm.XFS, OldXFS: true}}, nil, image, lacking{
		name: "file-systems", says: "/ is a file system in version 4 of XFS, which the new kernel, ",
	})
}

// storage is the guest of machines that do not have their root just on a partition.
type storage struct {
	lab     *bootlab.Lab
	builder vm.Builder
	files   []vm.TreeFile
	modules []string // of dracut, in the initramfs
}

func newStorage(t *testing.T) storage {
	t.Helper()
	spec := vm.GuestSpec{Suite: vm.Trixie}
	s := storage{builder: vm.Builder{Log: os.Stderr}, modules: []string{"dm", "lvm", "mdraid", "crypt", "systemd-cryptsetup", "btrfs", "guest-scsi", "multipath", "guest-multipath"}}
	var err error
	s.files, err = s.builder.Storage(t.Context(), spec)
	noError(t, err)
	whole, err := s.builder.EarlyWith(t.Context(), spec, s.files, s.modules...)
	noError(t, err)
	spec.Overlay = append(slices.Clone(s.files), whole)
	s.lab = newLab(t, spec)
	return s
}

// lacking is an image that lacks something.
type lacking struct {
	files map[string]string
	name  string // of the refusal; "": initramfs
	says  string // by pivot
	waits string // on the console of a system that waits without an end; "" if it ends in the emergency shell
}

// without returns an image with an initramfs that was made without modules of dracut.
func (s storage) without(t *testing.T, modules ...string) lacking {
	t.Helper()
	others := slices.DeleteFunc(slices.Clone(s.modules), func(m string) bool { return slices.Contains(modules, m) })
	return lacking{files: s.initramfs(t, s.files, others), says: "the new initramfs lacks dracut's module " + modules[0] + ", which today's has (/ stands on it)"}
}

// withoutPrograms returns an image with an initramfs that was made where files are missing.
func (s storage) withoutPrograms(t *testing.T, missing ...string) lacking {
	t.Helper()
	others := slices.DeleteFunc(slices.Clone(s.files), func(f vm.TreeFile) bool { return slices.Contains(missing, f.Path) })
	return lacking{files: s.initramfs(t, others, s.modules), says: "rebooting into"}
}

// initramfs returns the path and the content of an initramfs, made from files and with modules of dracut.
func (s storage) initramfs(t *testing.T, files []vm.TreeFile, modules []string) map[string]string {
	t.Helper()
	file, err := s.builder.EarlyWith(t.Context(), vm.GuestSpec{Suite: vm.Trixie}, files, modules...)
	noError(t, err)
	content, err := os.ReadFile(file.Source)
	noError(t, err)
	return map[string]string{strings.TrimPrefix(file.Path, "/"): string(content)}
}

// withoutDriver returns an image with an initramfs that has all modules of dracut, and not a driver of md or the device mapper.
func (s storage) withoutDriver(t *testing.T, alias, driver string) lacking {
	t.Helper()
	file, content := initramfsWithout(t, s.lab, "kernel/drivers/md/"+strings.ReplaceAll(driver, "_", "-")+".ko")
	return lacking{files: map[string]string{file: content}, says: "/ stands on a device, and the new initramfs lacks its driver (" + alias + ", by " + driver + ")"}
}

// refused has a machine refuse an image, then go to one that lacks nothing, and from that to the other all the same.
func (s storage) refused(t *testing.T, setup grubSetup, arguments []string, lacks lacking) {
	t.Helper()
	l := alone(t, s.lab)
	image, err := l.WithFiles(t.Context(), "lacking", lacks.files)
	noError(t, err)
	refusedThenForced(t, l, setup, arguments, image, lacks)
}

// starts has a machine go to an image that it does not refuse, in spite of what that lacks.
func (s storage) starts(t *testing.T, setup grubSetup, arguments []string, lacks lacking) {
	t.Helper()
	l := alone(t, s.lab)
	image, err := l.WithFiles(t.Context(), "lacking", lacks.files)
	noError(t, err)
	m := changing(t, l, setup, arguments, "pivot rebase "+image+" -r")
	m.boot(vm.Rebooted, lacks.says)
	if r := report(t, m.boot(vm.PoweredOff, "@@reported")); !r.MarkerB {
		t.Errorf("version %s starts, want B", r.Version)
	}
}

// changing returns a machine that runs a command in each boot of the old system.
func changing(t *testing.T, l *bootlab.Lab, setup grubSetup, arguments []string, commands ...string) grubMachine {
	t.Helper()
	setup.layout.SeparateBoot = true
	return newGRUBMachine(t, l, setup, bootlab.Setup{
		Files:      append(inTurn(commands...), vm.TreeFile{Path: "/boot/luks.key", Mode: 0o600, Content: []byte(vm.LUKSKey)}),
		KernelArgs: append([]string{retry}, arguments...),
	})
}

// refusedThenForced does that, for an image.
func refusedThenForced(t *testing.T, l *bootlab.Lab, setup grubSetup, arguments []string, image string, lacks lacking) {
	t.Helper()
	name := cmp.Or(lacks.name, "initramfs")
	m := changing(t, l, setup, arguments, "pivot rebase "+image+" -r || echo \"@@status $?\"; pivot rebase "+l.Image+" -r", "pivot rebase "+image+" --accept "+name+" -r")
	expectSaid(t, m.boot(vm.Rebooted, "@@status 78"), lacks.says)
	m.boot(vm.Rebooted, "accepted ("+name+")")
	if lacks.waits != "" {
		m.cut(lacks.waits)
		return
	}
	m.boot(vm.Emergency, "emergency")
}
