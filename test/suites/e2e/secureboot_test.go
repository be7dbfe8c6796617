package e2e_test

import (
	"crypto/x509"
	"encoding/binary"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"machine-pivot/internal/ostree"
	"machine-pivot/test/tools/need"
	"machine-pivot/test/worlds/bootlab"
	"machine-pivot/test/worlds/efi"
	"machine-pivot/test/worlds/oscontainer"
	"machine-pivot/test/worlds/vm"
)

// TestKernelsWithSecureBoot (P99) compares what pivot finds of kernels with what the real firmware, shim and GRUB do. Each
// kernel that is refused is then used all the same, and does not start. One that the machine's owner has signed is not
// refused, and starts. It is part of "make nightly".
func TestKernelsWithSecureBoot(t *testing.T) {
	l := newLab(t, vm.GuestSpec{Suite: vm.Trixie})
	needGRUB(t)
	together(t, []bootCase{
		{"on", func(t *testing.T) { kernelsJudged(t, alone(t, l)) }},
		{"by the image's boot loader", func(t *testing.T) { kernelOfOtherShim(t, alone(t, l)) }},
		{"two disks", func(t *testing.T) { twoDisks(t, alone(t, l)) }},
		{"power cuts of the boot loader", func(t *testing.T) { cutBootLoader(t, alone(t, l)) }},
		{"off", func(t *testing.T) { kernelsNotJudged(t, alone(t, l)) }},
	})
}

// kernels makes images of B with other kernels.
type kernels struct {
	t *testing.T
	l *bootlab.Lab
}

// own returns B's kernel, without its signature.
func (k kernels) own() (kernel []byte, path string) {
	k.t.Helper()
	repo, err := ostree.OpenRepo(k.l.Guest.BareRepo())
	noError(k.t, err)
	commit, err := ostree.ParseChecksum(k.l.Guest.CommitB)
	noError(k.t, err)
	files, err := repo.BootFiles(commit)
	noError(k.t, err)
	i := slices.IndexFunc(files, ostree.BootFile.IsKernel)
	kernel, err = os.ReadFile(repo.FileObject(files[i].Object))
	noError(k.t, err)
	return efi.Unsigned(kernel), files[i].Path()
}

// image returns an image of B with a kernel; by: who signs it, or nobody.
func (k kernels) image(name string, kernel []byte, by *efi.Key) string {
	k.t.Helper()
	return k.imageWith(name, kernel, by, map[string]string{})
}

func (k kernels) imageWith(name string, kernel []byte, by *efi.Key, files map[string]string, more ...oscontainer.Entry) string {
	k.t.Helper()
	_, path := k.own()
	if by != nil {
		signed, err := by.Sign(kernel)
		noError(k.t, err)
		kernel = signed
	}
	files[path] = string(kernel)
	image, err := k.l.WithFiles(k.t.Context(), name, files, more...)
	noError(k.t, err)
	return image
}

func newKey(t *testing.T, name string) *efi.Key {
	t.Helper()
	key, err := efi.NewKey(name, nil, nil)
	noError(t, err)
	return key
}

func kernelsJudged(t *testing.T, l *bootlab.Lab) {
	k := kernels{t, l}
	kernel, _ := k.own()
	owner, stranger := newKey(t, "Owner"), newKey(t, "Stranger")
	other := slices.Clone(kernel) // another program, which nobody will start
	other[len(other)/2] ^= 1
	unsigned, strangers, denied := k.image("unsigned", kernel, nil), k.image("strangers", kernel, stranger), k.image("denied", other, owner)
	good := k.image("owners", kernel, owner)
	forced := func(image string) string { return "pivot rebase " + image + " --accept secure-boot -r" }
	refused := "for image in " + unsigned + " " + strangers + " " + denied + "; do pivot rebase $image -r || echo \"@@status $?\"; done; "
	m := newGRUBMachine(t, l, grubSetup{secureBoot: true, trust: vm.Trust{Owner: efi.Certs(owner), Denied: efi.List(efi.SHA256, efi.Hash(other))}}, bootlab.Setup{
		Files: inTurn(refused+"pivot rebase "+good+" -r", forced(unsigned), forced(strangers), forced(denied)),
	})
	b := m.boot(vm.Rebooted, "its kernel would not be started: it has no signature")
	expectSaid(t, b, "Secure boot enabled", `it is signed by "Stranger"`, "neither is trusted", "it is one of those that are denied by their hashes", "@@status 78")
	choose := func(entry string) { // as somebody does at GRUB's menu
		noError(t, m.ChangeBoot(t.Context(), "echo 'set default="+entry+"' >grub2/user.cfg"))
	}
	for _, says := range []string{"it has no signature", `it is signed by "Stranger"`, "denied by their hashes"} {
		expectSaid(t, m.boot(vm.Rebooted, "accepted (secure-boot)"), "Secure boot enabled", says)
		choose("0")
		m.cut("bad shim signature")
		choose("1")
	}
}

// kernelOfOtherShim has a kernel that only the image's own shim starts. pivot installs that by the real bootupctl, and then the kernel
// that the installed shim would not start does. The firmware trusts who signed that shim, and Debian's key, for GRUB and the way back.
func kernelOfOtherShim(t *testing.T, l *bootlab.Lab) {
	m, _, _ := withOtherShim(t, l)
	b := m.boot(vm.Rebooted, "the image's boot loader is installed on /dev/vda1")
	if expectSaid(t, b, `it is signed by "Next vendor", issued by "Next vendor", and neither is trusted`); b.Said("there is no way back") {
		t.Error("the running kernel is said not to start any more")
	}
	expectSaid(t, m.boot(vm.PoweredOff, "@@reported"), "Secure boot enabled")
}

// cutBootLoader cuts the power while the real bootupctl writes. The firmware finds the old boot loader or the new one, and
// both start the old system. Of each state of the partition one machine is booted.
func cutBootLoader(t *testing.T, l *bootlab.Lab) {
	m, old, next := withOtherShim(t, l)
	dir := scratch(t)
	m.bootWith(vm.BootOptions{Record: dir}, vm.Rebooted, "the image's boot loader is installed on /dev/vda1")
	recording, err := vm.OpenRecording(dir)
	noError(t, err)
	esp, err := recording.ESP(t.Context())
	noError(t, err)
	c := espCutter{t: t, esp: esp, old: old, next: next, dir: scratch(t), at: map[vm.Cut]string{}, states: map[string]vm.Cut{}}
	writes := esp.Writes()
	if c.cut(writes); len(writes) < 100 || len(c.states) < 2 {
		t.Fatalf("%d writes left %d states: bootupctl is not in the recording", len(writes), len(c.states))
	}
	for state, cut := range c.states {
		t.Logf("power cut %s:\n%s", cut, state)
		noError(t, recording.Rebuild(t.Context(), cut, m.Disk))
		m.boot(vm.PoweredOff, "@@reported")
	}
	t.Logf("%d of the power cuts at %d writes to the EFI system partition were looked at; %d states, and each starts the old system", len(c.at), len(writes), len(c.states))
}

// espCutter looks at what power cuts leave of a boot loader.
type espCutter struct {
	t         *testing.T
	esp       vm.ESP
	old, next map[string]string // by path
	dir       string
	at        map[vm.Cut]string // the states so far
	states    map[string]vm.Cut // with a cut that leaves each
}

// cut cuts the power at a grid of writes, and at all writes near a change of the state. There a disk also loses a half of
// what was not flushed.
func (c *espCutter) cut(writes []int) {
	const grid, around = 100, 8
	step := max(1, len(writes)/grid)
	for from := 0; from < len(writes)-1; from += step {
		for _, change := range c.changes(writes, from, min(from+step, len(writes)-1)) {
			for i := max(0, change-around); i < min(len(writes), change+around); i++ {
				c.look(vm.Cut{Before: writes[i]})
				for seed := range uint64(3) {
					c.look(vm.Cut{Before: writes[i], Drop: true, Seed: seed})
				}
			}
		}
	}
}

// changes returns the writes between two others that change the state.
func (c *espCutter) changes(writes []int, from, to int) []int {
	if c.look(vm.Cut{Before: writes[from]}) == c.look(vm.Cut{Before: writes[to]}) {
		return nil
	}
	if to-from == 1 {
		return []int{to}
	}
	middle := (from + to) / 2
	return append(c.changes(writes, from, middle), c.changes(writes, middle, to)...)
}

// look returns which programs are old, and which new. Others are an error, unless the disk has lost what was not flushed:
// bootupctl flushes only after it has exchanged the directories. docs/start.md says so.
func (c *espCutter) look(cut vm.Cut) (state string) {
	c.t.Helper()
	if state, known := c.at[cut]; known {
		return state
	}
	names := slices.Sorted(maps.Keys(c.old))
	files, err := c.esp.Files(c.t.Context(), cut, c.dir, names...)
	noError(c.t, err)
	damaged := 0
	for _, name := range names {
		switch files[name] {
		case c.old[name]:
			state += name + ": old\n"
		case c.next[name]:
			state += name + ": new\n"
		default:
			state += name + ": damaged\n"
			damaged++
		}
	}
	switch c.at[cut] = state; {
	case damaged == 0:
		c.states[state] = cut
	case cut.Drop:
		c.t.Logf("power cut %s:\n%s", cut, state)
	default:
		c.t.Errorf("power cut %s:\n%s", cut, state)
	}
	return state
}

// withOtherShim returns a machine that will change to an image with a kernel that only the image's shim starts. It also
// returns the programs of both boot loaders, by their paths on the EFI system partition.
func withOtherShim(t *testing.T, l *bootlab.Lab) (m grubMachine, old, next map[string]string) {
	s := newShims(t, l)
	image, next := s.image("16")
	m = newGRUBMachine(t, l, grubSetup{secureBoot: true, esp: true, trust: s.trust}, bootlab.Setup{
		Files: inTurn("pivot rebase "+image+" -r", "true"),
	})
	return m, s.loader(s.debian), next
}

// shims makes images with shims of their own.
type shims struct {
	kernels
	debian   []byte   // the shim of Debian
	signer   *efi.Key // of the others, which the firmware trusts
	trust    vm.Trust
	programs []oscontainer.Entry
}

func newShims(t *testing.T, l *bootlab.Lab) shims {
	t.Helper()
	debian, err := vm.Shim()
	noError(t, err)
	vendor, err := efi.VendorOf(debian)
	noError(t, err)
	signer := newKey(t, "Signer of shims")
	programs, microsoft := bootupd(t)
	return shims{kernels{t, l}, debian, signer, vm.Trust{Allowed: slices.Concat(efi.Certs(signer), efi.List(efi.X509, vendor), efi.List(efi.X509, microsoft))}, programs}
}

// loader returns the programs of a boot loader with a shim, by their paths on the EFI system partition.
func (s shims) loader(shim []byte) map[string]string {
	s.t.Helper()
	grub, err := vm.GRUB()
	noError(s.t, err)
	return map[string]string{"EFI/BOOT/BOOTX64.EFI": string(shim), "EFI/BOOT/grubx64.efi": string(grub), "EFI/debian/shimx64.efi": string(shim), "EFI/debian/grubx64.efi": string(grub)}
}

// image returns an image with a shim of a version, of a new vendor, and with a kernel that only that shim starts. loader has
// the programs of its boot loader.
func (s shims) image(version string) (image string, loader map[string]string) {
	s.t.Helper()
	kernel, _ := s.own()
	vendor := newKey(s.t, "Next vendor")
	shim, err := efi.WithVendor(s.debian, vendor)
	noError(s.t, err)
	shim, err = s.signer.Sign(shim)
	noError(s.t, err)
	loader = s.loader(shim)
	files := map[string]string{"usr/lib/bootupd/updates/EFI.json": fmt.Sprintf(`{"timestamp":"2026-11-01T00:00:00Z","version":"grub2-2.12,shim-%[1]s","versions":[{"name":"grub2","rpm_evr":"2.12"},{"name":"shim","rpm_evr":%[1]q}]}`, version)}
	for name, content := range loader {
		component := "shim/" + version
		if strings.HasSuffix(name, "grubx64.efi") {
			component = "grub2/2.12"
		}
		files["usr/lib/efi/"+component+"/"+name] = content
	}
	return s.imageWith("shim-"+version, kernel, vendor, files, s.programs...), loader
}

// twoDisks has /boot on a RAID of two disks, each with an EFI system partition: the firmware may start either. The real
// bootupctl first adopts what is there. The second time it begins with what it has noted in its state file. Only the partition's
// own files show what is installed.
func twoDisks(t *testing.T, l *bootlab.Lab) {
	s := newShims(t, l)
	first, firstLoader := s.image("16")
	second, secondLoader := s.image("17")
	const mirror = "/var/lib/mirror/start; "
	m := newGRUBMachine(t, l, grubSetup{secureBoot: true, esp: true, trust: s.trust}, bootlab.Setup{
		Files: append(mirroring(t), inTurn(mirror+"pivot rebase "+first+" -r", mirror+"pivot rebase "+second+" --accept way-back -r", "true")...),
	})
	other := filepath.Join(scratch(t), "other.img")
	noError(t, vm.MirrorDisk(t.Context(), other, m.firmware))
	m.Extra = append(m.Extra, "-drive", "if=none,id=other,format=raw,file="+other, "-device", "virtio-blk-pci,drive=other")
	const installed = "the image's boot loader is installed on /dev/vda1, /dev/vdb1"
	for n, loader := range []map[string]string{firstLoader, secondLoader} {
		m.boot(vm.Rebooted, installed)
		state, err := m.ReadFile("/boot/bootupd-state.json")
		noError(t, err)
		if adopted := !strings.Contains(string(state), `"adopted-from":null`); adopted != (n == 0) {
			t.Errorf("change %d: the state of bootupd is %s", n, state)
		}
		for _, disk := range []string{m.Disk, other} {
			for name, content := range loader {
				found, err := vm.ESPFile(t.Context(), disk, name)
				noError(t, err)
				if string(found) != content {
					t.Errorf("%s on %s is not the image's", name, filepath.Base(disk))
				}
			}
		}
	}
	expectSaid(t, m.boot(vm.PoweredOff, "@@reported"), "Secure boot enabled")
}

// mirroring returns the files of a program that replaces /boot by a RAID of its partition and that of the second disk.
func mirroring(t *testing.T) []vm.TreeFile {
	t.Helper()
	const md = "kernel/drivers/md/"
	packages, err := (&vm.Builder{Log: testLog{t}}).Packages(t.Context(), vm.GuestSpec{Suite: vm.Trixie}, []string{"mdadm"}, []string{md + "md-mod.ko.xz", md + "raid1.ko.xz"})
	noError(t, err)
	const dir = "/var/lib/mirror/"
	return []vm.TreeFile{
		{Path: dir + "mdadm", Mode: 0o755, Source: filepath.Join(packages, "usr/sbin/mdadm")},
		{Path: dir + "md-mod.ko.xz", Mode: 0o644, Source: filepath.Join(packages, "modules/md-mod.ko.xz")},
		{Path: dir + "raid1.ko.xz", Mode: 0o644, Source: filepath.Join(packages, "modules/raid1.ko.xz")},
		{Path: dir + "start", Mode: 0o755, Content: []byte(`#!/bin/sh -e
cd /var/lib/mirror
insmod ./md-mod.ko.xz
insmod ./raid1.ko.xz
umount /boot
./mdadm --build /dev/md0 --run --level=1 --raid-devices=2 /dev/vda2 /dev/vdb2
./mdadm --wait /dev/md0 || true # with nothing to wait for, it fails
mount /dev/md0 /boot
`)},
	}
}

// bootupd returns the real bootupctl, and the certificate in it without which it updates no
// machine with Secure Boot.
func bootupd(t *testing.T) (programs []oscontainer.Entry, certificate []byte) {
	t.Helper()
	cache, err := os.UserCacheDir()
	noError(t, err)
	root := filepath.Join(cache, "machine-pivot/bootupd")
	program, err := os.ReadFile(filepath.Join(root, "bin/bootupd"))
	if err != nil {
		need.Lacking(t, "cannot try the real bootupctl here: lacking it: cargo install bootupd --version 0.3.2 --root "+root)
	}
	programs = []oscontainer.Entry{oscontainer.Program("usr/bin/bootupctl", string(program))} // guests have its libraries
	for at := range program {
		if rest := program[at:]; len(rest) > 4 && rest[0] == 0x30 && rest[1] == 0x82 {
			end := 4 + int(binary.BigEndian.Uint16(rest[2:]))
			if cert, err := x509.ParseCertificate(rest[:min(end, len(rest))]); err == nil && cert.Subject.CommonName == "Microsoft UEFI CA 2023" {
				return programs, cert.Raw
			}
		}
	}
	t.Fatal("bootupctl has no certificate")
	return nil, nil
}

// kernelsNotJudged expects no word about signatures without Secure Boot, and that an unsigned kernel starts.
func kernelsNotJudged(t *testing.T, l *bootlab.Lab) {
	k := kernels{t, l}
	kernel, _ := k.own()
	m := newGRUBMachine(t, l, grubSetup{secureBoot: true, trust: vm.Trust{Off: true}}, bootlab.Setup{
		Files: inTurn("pivot rebase "+k.image("unsigned", kernel, nil)+" -r", "true"),
	})
	if b := m.boot(vm.Rebooted, "rebooting"); b.Said("Secure Boot") {
		t.Error("something is said about Secure Boot")
	}
	m.boot(vm.PoweredOff, "@@reported")
}

func noError(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
