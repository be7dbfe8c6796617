package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"machine-pivot/internal/host"
	"machine-pivot/internal/ostree"
	"machine-pivot/test/worlds/efi"
	"machine-pivot/test/worlds/hostdir"
)

// TestImageCheckSecureBoot (P103): an image is judged as the firmware and the shim of this machine will, or those of one elsewhere, of
// which its facts have what they trust. Of a machine where something else decides, nothing is believed.
func TestImageCheckSecureBoot(t *testing.T) {
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	key := func(name string) *efi.Key {
		k, err := efi.NewKey(name, nil, nil)
		must(err)
		return k
	}
	vendor, next, firmware := key("Vendor CA 5"), key("Vendor CA 8"), key("UEFI CA 2011")
	sign := func(program []byte, by *efi.Key) string {
		signed, err := by.Sign(program)
		must(err)
		return string(signed)
	}
	kernel := efi.Program(efi.Section{Name: ".text", Content: "kernel"})
	shim := efi.Program(efi.Section{Name: ".vendor_cert", Content: string(efi.Vendor(next))})
	const path = "usr/lib/modules/6.1/vmlinuz"
	withLoader := map[string]string{
		path: sign(kernel, next),
		"usr/lib/efi/shim/15.8-3/EFI/redhat/shimx64.efi":  sign(shim, firmware),
		"usr/lib/efi/grub2/2.12-1/EFI/redhat/grubx64.efi": sign(kernel, next),
	}
	for _, c := range []struct {
		name       string
		image      map[string]string
		running    string // the kernel of the machine with the facts
		status     int
		said, note string
	}{
		{"signed", map[string]string{path: sign(kernel, vendor)}, sign(kernel, vendor), 0, "", "nothing that was asked speaks against the image"},
		{"unsigned", map[string]string{path: string(kernel)}, sign(kernel, vendor), 65, "Secure Boot is on, and its kernel would not be started: it has no signature", ""},
		{"by another key", map[string]string{path: sign(kernel, next)}, sign(kernel, vendor), 65, `it is signed by "Vendor CA 8"`, ""},
		{"by a key that its own shim knows", withLoader, sign(kernel, vendor), 0, "", "the image's own boot loader is installed before the commit"},
		{"the running one is not signed, either", map[string]string{path: string(kernel)}, string(kernel), 0, "", "which kernels start is not known: it has no signature"},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := hostdir.New(t)
			must(efi.Variables(h.Root, map[string][]byte{efi.SecureBoot: {1}, efi.DB: efi.Certs(firmware), efi.MokList: efi.Certs(vendor), "Unrelated-1": []byte("secret")}))
			booted, err := host.New(h.Root).Sysroot().Booted()
			must(err)
			repo, err := ostree.OpenRepo(host.New(h.Root).Sysroot().RepoPath())
			must(err)
			files, err := repo.BootFiles(booted.Checksum)
			must(err)
			i := slices.IndexFunc(files, ostree.BootFile.IsKernel)
			must(os.WriteFile(repo.FileObject(files[i].Object), []byte(c.running), 0o644))
			h.PutIntoNext(c.image)
			image, run := h.Push(h.NativeImage()), runner(t, h)
			facts := run("facts")
			file := filepath.Join(t.TempDir(), "facts.json")
			must(os.WriteFile(file, []byte(facts.stdout), 0o644))
			var shown struct{ Firmware map[string][]byte }
			must(json.Unmarshal([]byte(facts.stdout), &shown))
			if want := map[bool]int{true: 3}[c.running != string(kernel)]; len(shown.Firmware) != want {
				t.Errorf("the facts have %d variables, want %d", len(shown.Firmware), want)
			}
			for _, args := range [][]string{{"image", "check", image}, {"image", "check", image, "--host", file}} {
				if got := run(args...); got.status != c.status || !strings.Contains(got.stderr, c.said) || !strings.Contains(got.stdout, c.note) {
					t.Errorf("%q: status %d\n%s%s", args[3:], got.status, got.stdout, got.stderr)
				}
			}
		})
	}
}
