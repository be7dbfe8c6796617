package e2e_test

import (
	"crypto/x509"
	"encoding/binary"
	"maps"
	"os"
	"path/filepath"
	"slices"
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
	k := kernels{t, l}
	kernel, _ := k.own()
	vendor, signer := newKey(t, "Next vendor"), newKey(t, "Signer of shims")
	shim, err := vm.Shim()
	noError(t, err)
	grub, err := vm.GRUB()
	noError(t, err)
	loader := func(shim []byte) map[string]string {
		return map[string]string{"EFI/BOOT/BOOTX64.EFI": string(shim), "EFI/BOOT/grubx64.efi": string(grub), "EFI/debian/shimx64.efi": string(shim), "EFI/debian/grubx64.efi": string(grub)}
	}
	old = loader(shim)
	debian, err := efi.VendorOf(shim)
	noError(t, err)
	shim, err = efi.WithVendor(shim, vendor)
	noError(t, err)
	shim, err = signer.Sign(shim)
	noError(t, err)
	programs, microsoft := bootupd(t)
	const ofShim, ofGRUB = "usr/lib/efi/shim/16/EFI/", "usr/lib/efi/grub2/2.12/EFI/"
	image := k.imageWith("other-shim", kernel, vendor, map[string]string{
		ofShim + "BOOT/BOOTX64.EFI": string(shim), ofGRUB + "BOOT/grubx64.efi": string(grub),
		ofShim + "debian/shimx64.efi": string(shim), ofGRUB + "debian/grubx64.efi": string(grub),
		"usr/lib/bootupd/updates/EFI.json": `{"timestamp":"2026-11-01T00:00:00Z","version":"grub2-2.12,shim-16","versions":[{"name":"grub2","rpm_evr":"2.12"},{"name":"shim","rpm_evr":"16"}]}`,
	}, programs...)
	m = newGRUBMachine(t, l, grubSetup{secureBoot: true, esp: true, trust: vm.Trust{Allowed: slices.Concat(efi.Certs(signer), efi.List(efi.X509, debian), efi.List(efi.X509, microsoft))}}, bootlab.Setup{
		Files: inTurn("pivot rebase "+image+" -r", "true"),
	})
	return m, old, loader(shim)
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
