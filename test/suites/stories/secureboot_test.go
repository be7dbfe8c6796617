package stories_test

import (
	"bytes"
	"compress/gzip"
	"os"
	"slices"
	"strings"
	"testing"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/ostree"
	"machine-pivot/internal/verdict"
	"machine-pivot/test/worlds/efi"
	"machine-pivot/test/worlds/hostdir"
)

// TestSecureBoot (P99): with Secure Boot, an image with a kernel that would not be started is refused, with what helps. It is
// not refused if its verdict is accepted, without Secure Boot, or where the running kernel would not be started either.
func TestSecureBoot(t *testing.T) {
	key := func(name string) *efi.Key {
		k, err := efi.NewKey(name, nil, nil)
		must(t, err)
		return k
	}
	vendor, next, firmware, newer := key("Vendor CA 5"), key("Vendor CA 8"), key("UEFI CA 2011"), key("UEFI CA 2023")
	sign := func(program []byte, by *efi.Key) string {
		signed, err := by.Sign(program)
		must(t, err)
		return string(signed)
	}
	kernel := efi.Program(efi.Section{Name: ".text", Content: "kernel"})
	shim := efi.Program(efi.Section{Name: ".vendor_cert", Content: string(efi.Vendor(next))})
	on := map[string][]byte{efi.SecureBoot: {1}, efi.DB: efi.Certs(firmware), efi.MokList: efi.Certs(vendor)}
	var compressed bytes.Buffer
	z := gzip.NewWriter(&compressed)
	_, err := z.Write([]byte(sign(kernel, vendor)))
	must(t, err)
	must(t, z.Close())
	const path = kernelPath
	for _, c := range []struct {
		name          string
		image         map[string]string
		variables     map[string][]byte // nil: on
		running       string            // the running kernel; "": a signed one
		accept        []verdict.Name
		refused, hint string // "": it is accepted
		note          string
	}{
		{name: "signed", image: map[string]string{path: sign(kernel, vendor)}},
		{name: "signed, and compressed", image: map[string]string{path: compressed.String()}},
		{name: "unsigned", image: map[string]string{path: string(kernel)}, refused: "Secure Boot is on, and its kernel would not be started: it has no signature", hint: "use an image with a signed kernel; or"},
		{name: "unsigned, and accepted", image: map[string]string{path: string(kernel)}, accept: []verdict.Name{verdict.SecureBoot}, note: "warning: accepted (secure-boot): Secure Boot is on"},
		{name: "by an unknown key", image: map[string]string{path: sign(kernel, next)},
			refused: `it is signed by "Vendor CA 8", issued by "Vendor CA 8", and neither is trusted`, hint: "one of those that shim trusts (Vendor CA 5, UEFI CA 2011), or enrol the certificate of its signer, which somebody confirms at the console of the next boot (mokutil --import FILE); or, if you know better"},
		{name: "by a key of a shim that is too new", image: map[string]string{path: sign(kernel, next), shimPath: sign(shim, newer), grubPath: sign(kernel, next)},
			refused: "neither is trusted", hint: `The image's own boot loader is no help: the firmware would not start its shim (it is signed by "UEFI CA 2023"`},
		{name: "withdrawn", image: map[string]string{path: sign(kernel, vendor)}, running: sign(efi.Program(efi.Section{Name: ".text", Content: "older"}), vendor),
			variables: map[string][]byte{efi.SecureBoot: {1}, efi.MokList: efi.Certs(vendor), efi.DBX: efi.List(efi.SHA256, efi.Hash(kernel))},
			refused:   "denied by their hashes", hint: "use a newer image"},
		{name: "the running one is not trusted either", image: map[string]string{path: string(kernel)}, running: string(kernel), note: "but of the running one the same is found: it has no signature"},
		{name: "Secure Boot is off", image: map[string]string{path: string(kernel)}, variables: map[string][]byte{efi.SecureBoot: {0}}},
		{name: "a form that old boot loaders cannot load", image: map[string]string{path: "MZ\x00\x00zimg"}, variables: map[string][]byte{}, note: "warning: its kernel is an EFI zboot program, and the running one is not"},
		{name: "no EFI", image: map[string]string{path: string(kernel)}, variables: map[string][]byte{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHost(t)
			if c.variables == nil {
				c.variables = on
			}
			if len(c.variables) > 0 {
				must(t, efi.Variables(h.Root, c.variables))
			}
			if c.running == "" {
				c.running = sign(kernel, vendor)
			}
			runKernel(t, h, c.running)
			h.PutIntoNext(c.image)
			h.Image = h.Push(h.NativeImage())
			ask(t, h)
			notes, err := rehearsed(t, h, nil, c.accept...)
			if c.refused == "" {
				if err != nil || !strings.Contains(notes, c.note) || c.note == "" && strings.Contains(notes, "Secure Boot") {
					t.Errorf("error %v, notes:\n%s", err, notes)
				}
				return
			}
			if fault.KindOf(err) != fault.Refused || !strings.Contains(err.Error(), c.refused) || !strings.Contains(fault.HintOf(err), c.hint) || h.Reboots != 0 || len(h.Ostree.Calls) != 0 {
				t.Errorf("error %v, hint %q, %d reboots, calls %v", err, fault.HintOf(err), h.Reboots, h.Ostree.Calls)
			}
		})
	}
}

// runKernel makes a kernel the one that runs: its object has another content, which nothing but a check of the repository sees.
func runKernel(t *testing.T, h *hostdir.Host, kernel string) {
	t.Helper()
	booted, err := newMachine(t, h).Host.Sysroot().Booted()
	must(t, err)
	repo, err := ostree.OpenRepo(newMachine(t, h).Host.Sysroot().RepoPath())
	must(t, err)
	files, err := repo.BootFiles(booted.Checksum)
	must(t, err)
	i := slices.IndexFunc(files, ostree.BootFile.IsKernel)
	must(t, os.WriteFile(repo.FileObject(files[i].Object), []byte(kernel), 0o644))
}
