package e2e_test

import (
	"os"
	"path"
	"slices"
	"strings"
	"testing"

	"machine-pivot/internal/ostree"
	"machine-pivot/test/worlds/bootlab"
	"machine-pivot/test/worlds/vm"
)

// TestInitramfsWithoutDriver (P100): an image is refused if its initramfs lacks the driver for the disk of /. Used all the same, it
// does not start. It is part of "make nightly".
func TestInitramfsWithoutDriver(t *testing.T) {
	l := newLab(t, vm.GuestSpec{Suite: vm.Trixie})
	needGRUB(t)
	file, initramfs := initramfsWithout(t, l, "kernel/drivers/block/virtio_blk.ko")
	image, err := l.WithFiles(t.Context(), "without-driver", map[string]string{file: initramfs})
	noError(t, err)
	m := newGRUBMachine(t, l, grubSetup{}, bootlab.Setup{
		Files:      inTurn("pivot rebase " + image + " -r || echo \"@@status $?\"; pivot rebase " + image + " --accept initramfs -r"),
		KernelArgs: []string{"rd.retry=20"}, // otherwise dracut waits three minutes for a disk
	})
	b := m.boot(vm.Rebooted, "accepted (initramfs)")
	expectSaid(t, b, "/ stands on a device, and the new initramfs lacks its driver (virtio:", "@@status 78")
	m.boot(vm.Emergency, "emergency")
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
