package e2e_test

import (
	"crypto/x509"
	"encoding/binary"
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
	k := kernels{t, l}
	kernel, _ := k.own()
	vendor, signer := newKey(t, "Next vendor"), newKey(t, "Signer of shims")
	shim, err := vm.Shim()
	noError(t, err)
	grub, err := vm.GRUB()
	noError(t, err)
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
	m := newGRUBMachine(t, l, grubSetup{secureBoot: true, esp: true, trust: vm.Trust{Allowed: slices.Concat(efi.Certs(signer), efi.List(efi.X509, debian), efi.List(efi.X509, microsoft))}}, bootlab.Setup{
		Files: inTurn("pivot rebase "+image+" -r", "true"),
	})
	b := m.boot(vm.Rebooted, "the image's boot loader is installed on /dev/vda1")
	if expectSaid(t, b, `it is signed by "Next vendor", issued by "Next vendor", and neither is trusted`); b.Said("there is no way back") {
		t.Error("the running kernel is said not to start any more")
	}
	expectSaid(t, m.boot(vm.PoweredOff, "@@reported"), "Secure boot enabled")
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
