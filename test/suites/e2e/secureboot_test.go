package e2e_test

import (
	"os"
	"slices"
	"testing"

	"machine-pivot/internal/ostree"
	"machine-pivot/test/worlds/efi"
	"machine-pivot/test/worlds/lab"
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
	l *lab.Lab
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

func (k kernels) imageWith(name string, kernel []byte, by *efi.Key, files map[string]string) string {
	k.t.Helper()
	_, path := k.own()
	if by != nil {
		signed, err := by.Sign(kernel)
		noError(k.t, err)
		kernel = signed
	}
	files[path] = string(kernel)
	image, err := k.l.WithFiles(k.t.Context(), name, files)
	noError(k.t, err)
	return image
}

func newKey(t *testing.T, name string) *efi.Key {
	t.Helper()
	key, err := efi.NewKey(name, nil, nil)
	noError(t, err)
	return key
}

func kernelsJudged(t *testing.T, l *lab.Lab) {
	k := kernels{t, l}
	kernel, _ := k.own()
	owner, stranger := newKey(t, "Owner"), newKey(t, "Stranger")
	other := slices.Clone(kernel) // another program, which nobody will start
	other[len(other)/2] ^= 1
	unsigned, strangers, denied := k.image("unsigned", kernel, nil), k.image("strangers", kernel, stranger), k.image("denied", other, owner)
	good := k.image("owners", kernel, owner)
	forced := func(image string) string { return "pivot rebase " + image + " --accept secure-boot -r" }
	refused := "for image in " + unsigned + " " + strangers + " " + denied + "; do pivot rebase $image -r || echo \"@@status $?\"; done; "
	m := newGRUBMachine(t, l, grubSetup{secureBoot: true, trust: vm.Trust{Owner: efi.Certs(owner), Denied: efi.List(efi.SHA256, efi.Hash(other))}}, lab.Setup{
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

// kernelOfOtherShim has a kernel that only the image's own shim starts, which is a remedy and works: with that shim, installed by
// hand, the kernel that was refused starts. The firmware trusts who signed that shim, and Debian's key, for GRUB.
func kernelOfOtherShim(t *testing.T, l *lab.Lab) {
	k := kernels{t, l}
	kernel, _ := k.own()
	vendor, signer := newKey(t, "Next vendor"), newKey(t, "Signer of shims")
	shim, err := vm.Shim()
	noError(t, err)
	debian, err := efi.VendorOf(shim)
	noError(t, err)
	shim, err = efi.WithVendor(shim, vendor)
	noError(t, err)
	shim, err = signer.Sign(shim)
	noError(t, err)
	image := k.imageWith("other-shim", kernel, vendor, map[string]string{"usr/lib/efi/shim/16/EFI/debian/shimx64.efi": string(shim)})
	m := newGRUBMachine(t, l, grubSetup{secureBoot: true, trust: vm.Trust{Allowed: append(efi.Certs(signer), efi.List(efi.X509, debian)...)}}, lab.Setup{
		Files: inTurn("pivot rebase "+image+" -r || pivot rebase "+image+" --accept secure-boot -r", "true"),
	})
	b := m.boot(vm.Rebooted, `it is signed by "Next vendor", issued by "Next vendor", and neither is trusted`)
	expectSaid(t, b, "its shim starts this kernel")
	if b.Said("there is no way back") {
		t.Error("the running kernel is said not to start any more")
	}
	m.cut("bad shim signature")
	noError(t, vm.InstallShim(m.firmware, shim))
	expectSaid(t, m.boot(vm.PoweredOff, "@@reported"), "Secure boot enabled")
}

// kernelsNotJudged expects no word about signatures without Secure Boot, and that an unsigned kernel starts.
func kernelsNotJudged(t *testing.T, l *lab.Lab) {
	k := kernels{t, l}
	kernel, _ := k.own()
	m := newGRUBMachine(t, l, grubSetup{secureBoot: true, trust: vm.Trust{Off: true}}, lab.Setup{
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
