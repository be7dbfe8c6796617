package secureboot_test

import (
	"bytes"
	"crypto/x509"
	"encoding/asn1"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"machine-pivot/internal/secureboot"
	"machine-pivot/test/worlds/efi"
)

func newKey(t testing.TB, name string, issuer *efi.Key, change func(*x509.Certificate)) *efi.Key {
	t.Helper()
	k, err := efi.NewKey(name, issuer, change)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func sign(t testing.TB, program []byte, by *efi.Key, issuers ...*efi.Key) []byte {
	t.Helper()
	signed, err := by.Sign(program, issuers...)
	if err != nil {
		t.Fatal(err)
	}
	return signed
}

// changed returns a program with another byte at a place; negative: from its end.
func changed(program []byte, at int) []byte {
	program = slices.Clone(program)
	program[(at+len(program))%len(program)] ^= 1
	return program
}

// leaf makes a certificate one that may not issue others.
func leaf(c *x509.Certificate) { c.IsCA = false }

// TestCheck (P99): programs are started or not as shim's source says, by a machine's variables.
func TestCheck(t *testing.T) {
	vendor, other, db := newKey(t, "Vendor CA 5", nil, nil), newKey(t, "Vendor CA 8", nil, nil), newKey(t, "Firmware CA", nil, nil)
	signing := newKey(t, "Vendor Signing 1", vendor, leaf)
	middle := newKey(t, "Intermediate", vendor, nil)
	deep := newKey(t, "Deep", middle, leaf)
	forged := newKey(t, "Forged", newKey(t, "Vendor CA 5", nil, nil), leaf) // of another CA of the same name
	byLeaf := newKey(t, "By a leaf", signing, leaf)
	modules := newKey(t, "Modules", nil, func(c *x509.Certificate) {
		c.UnknownExtKeyUsage = []asn1.ObjectIdentifier{{1, 3, 6, 1, 4, 1, 2312, 16, 1, 2}}
	})
	kernel := efi.Program(efi.Section{Name: ".setup", Content: "setup"}, efi.Section{Name: ".text", Content: "kernel"})
	old := efi.Program(efi.Section{Name: ".text", Content: "x"}, efi.Section{Name: ".sbat", Content: "sbat,1,SBAT Version,sbat,1,url\nlinux,3,x,linux,6,url\n"})
	good := sign(t, kernel, signing)

	plain := map[string][]byte{efi.SecureBoot: {1}, efi.MokList: efi.Certs(vendor), efi.MokListX: efi.List(efi.SHA256, make([]byte, 32)), efi.DB: efi.Certs(db), efi.DBX: {}}
	with := func(more map[string][]byte) map[string][]byte {
		all := map[string][]byte{}
		for _, m := range []map[string][]byte{plain, more} {
			for name, value := range m {
				all[name] = value
			}
		}
		return all
	}
	systemd := func(more map[string][]byte) map[string][]byte {
		all := with(more)
		delete(all, efi.MokList)
		all[efi.LoaderInfo] = []byte("s\x00y\x00s\x00t\x00e\x00m\x00d\x00-\x00b\x00o\x00o\x00t\x00 \x002\x005\x007\x00\x00\x00")
		return all
	}
	for _, c := range []struct {
		name      string
		program   []byte
		variables map[string][]byte // nil: plain
		refused   string            // "": started
		unsure    string
	}{
		{name: "signed by the vendor's signer", program: good},
		{name: "by the vendor itself", program: sign(t, kernel, vendor)},
		{name: "by a key in db", program: sign(t, kernel, db)},
		{name: "through an issuer in the signature", program: sign(t, kernel, deep, middle)},
		{name: "an issuer is missing", program: sign(t, kernel, deep), refused: `it is signed by "Deep", issued by "Intermediate", and neither is trusted`},
		{name: "unsigned", program: kernel, refused: "it has no signature"},
		{name: "no program", program: []byte("\x1f\x8b not decompressed"), refused: "it is not an EFI program"},
		{name: "cut off", program: good[:len(good)-8], refused: "it is not an EFI program"},
		{name: "by a key that only another shim knows", program: sign(t, kernel, other), refused: `it is signed by "Vendor CA 8", issued by "Vendor CA 8", and neither is trusted`},
		{name: "an issuer of the same name", program: sign(t, kernel, forged), refused: `issued by "Vendor CA 5", and neither is trusted`},
		{name: "issued by who may not issue", program: sign(t, kernel, byLeaf, signing), refused: "and neither is trusted"},
		{name: "two signatures, the second is good", program: sign(t, sign(t, kernel, other), signing)},
		{name: "two signatures, the first is good", program: sign(t, good, other)},
		{name: "the content was changed", program: changed(good, 0x400), refused: "its signature was made for another content"},
		{name: "the header was changed", program: changed(good, 0x48), refused: "its signature was made for another content"},
		{name: "the checksum was changed", program: changed(good, 0x40+24+64)},
		{name: "the signature was changed", program: changed(good, -12), refused: "its signature was made for another content"},
		{name: "denied by its hash", program: good, variables: with(map[string][]byte{efi.DBX: efi.List(efi.SHA256, make([]byte, 32), efi.Hash(kernel))}), refused: "denied by their hashes"},
		{name: "denied by its hash, by shim", program: good, variables: with(map[string][]byte{efi.MokListX: efi.List(efi.SHA256, efi.Hash(kernel))}), refused: "denied by their hashes"},
		{name: "its signer is denied", program: good, variables: with(map[string][]byte{efi.DBX: efi.Certs(signing)}), refused: `it is signed by "Vendor Signing 1", issued by "Vendor CA 5", which is denied`},
		{name: "an issuer is denied, by shim", program: good, variables: with(map[string][]byte{efi.MokListX: efi.Certs(vendor)}), refused: "which is denied"},
		{name: "one of two signers is denied", program: sign(t, good, other), variables: with(map[string][]byte{efi.DBX: efi.Certs(other)})},
		{name: "a machine owner's key", program: sign(t, kernel, other), variables: with(map[string][]byte{efi.MokList: efi.Certs(vendor, other)})},
		{name: "a machine owner's key in a second variable", program: sign(t, kernel, other), variables: with(map[string][]byte{efi.MokList1: efi.Certs(other)})},
		{name: "a machine owner's key for modules", program: sign(t, kernel, modules), variables: with(map[string][]byte{efi.MokList: efi.Certs(vendor, modules)}), refused: "and neither is trusted"},
		{name: "a machine owner's hash", program: kernel, variables: with(map[string][]byte{efi.MokList: append(efi.Certs(vendor), efi.List(efi.SHA256, efi.Hash(kernel))...)})},
		{name: "a hash in db", program: kernel, variables: with(map[string][]byte{efi.DB: efi.List(efi.SHA256, efi.Hash(kernel))})},
		{name: "db does not count", program: sign(t, kernel, db), variables: with(map[string][]byte{efi.IgnoreDB: {1}}), refused: "and neither is trusted"},
		{name: "shim does not validate", program: kernel, variables: with(map[string][]byte{efi.Insecure: {1}})},
		{name: "Secure Boot is off", program: kernel, variables: with(map[string][]byte{efi.SecureBoot: {0}})},
		{name: "setup mode", program: kernel, variables: with(map[string][]byte{efi.SetupMode: {1}})},
		{name: "no EFI", program: kernel, variables: map[string][]byte{}},
		{name: "a generation that is high enough", program: sign(t, old, signing), variables: with(map[string][]byte{efi.Level: []byte("sbat,1,2024\nlinux,3\ngrub,9\n")})},
		{name: "a generation that is too low", program: sign(t, old, signing), variables: with(map[string][]byte{efi.Level: []byte("sbat,1,2024\nlinux,4\n")}), refused: "its component linux has generation 3, and shim starts none below 4"},
		{name: "a damaged list ends the lists", program: good, variables: with(map[string][]byte{efi.MokList: append([]byte(efi.X509+"\xff\xff\xff\xff\x00\x00\x00\x00\x11\x00\x00\x00"), efi.Certs(vendor)...)}), refused: "and neither is trusted"},
		{name: "a certificate that cannot be read here", program: sign(t, kernel, other), variables: with(map[string][]byte{efi.DB: efi.List(efi.X509, odd(other))}), unsure: "1 trusted certificates cannot be read here"},
		{name: "the firmware: a key in db", program: sign(t, kernel, db), variables: systemd(nil)},
		{name: "the firmware: the vendor's key", program: good, variables: systemd(nil), refused: "and neither is trusted"},
		{name: "the firmware: one of two signers is denied", program: sign(t, sign(t, kernel, other), db), variables: systemd(map[string][]byte{efi.DBX: efi.Certs(other)}), refused: "which is denied"},
		{name: "neither shim nor systemd-boot", program: kernel, variables: with(map[string][]byte{efi.MokList: {}}), unsure: "which boot loader was started is not known"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.variables == nil {
				c.variables = plain
			}
			root := t.TempDir()
			if len(c.variables) > 0 {
				if err := efi.Variables(root, c.variables); err != nil {
					t.Fatal(err)
				}
			}
			firmware, err := secureboot.Read(filepath.Join(root, "sys/firmware/efi"))
			if err != nil {
				t.Fatal(err)
			}
			judge, err := firmware.Judge()
			if err == nil && judge != nil {
				err = judge.Check(bytes.NewReader(c.program), int64(len(c.program)))
			}
			refusal, refused := errors.AsType[*secureboot.Refusal](err)
			switch {
			case c.refused != "" && (!refused || !strings.Contains(refusal.Why, c.refused)),
				c.unsure != "" && (refused || err == nil || !strings.Contains(err.Error(), c.unsure)),
				c.refused == "" && c.unsure == "" && err != nil:
				t.Errorf("%v, wanted %q", err, c.refused+c.unsure)
			}
		})
	}
}

// odd returns a key's certificate with a version that does not exist.
func odd(k *efi.Key) []byte {
	der := slices.Clone(k.Cert.Raw)
	at := bytes.Index(der, []byte{0xa0, 3, 2, 1, 2})
	der[at+4] = 9
	return der
}

// TestWithShim (P99): another shim is judged by the firmware and by shim's own level, and what it judges by is its own certificate.
func TestWithShim(t *testing.T) {
	microsoft, newer := newKey(t, "UEFI CA 2011", nil, nil), newKey(t, "UEFI CA 2023", nil, nil)
	vendor, next := newKey(t, "Vendor CA 5", nil, nil), newKey(t, "Vendor CA 8", nil, nil)
	shim := efi.Program(efi.Section{Name: ".vendor_cert", Content: string(efi.Vendor(next))}, efi.Section{Name: ".sbat", Content: "sbat,1,SBAT Version\nshim,4,UEFI shim\n"})
	plain := efi.Program(efi.Section{Name: ".text", Content: "kernel"})
	kernel, old := sign(t, plain, next), sign(t, plain, vendor)
	for _, c := range []struct {
		name                 string
		shim                 []byte
		level                string
		refused, unsure      string
		startsNew, startsOld bool
	}{
		{name: "signed by the key of the firmware", shim: sign(t, shim, microsoft), startsNew: true},
		{name: "signed by both keys", shim: sign(t, sign(t, shim, newer), microsoft), startsNew: true},
		{name: "signed by the newer key only", shim: sign(t, shim, newer), refused: `it is signed by "UEFI CA 2023"`},
		{name: "withdrawn", shim: sign(t, shim, microsoft), level: "sbat,1,2024\nshim,5\n", refused: "its component shim has generation 4"},
		{name: "a program that is no shim", shim: sign(t, plain, microsoft), unsure: "it is no shim"},
	} {
		root := t.TempDir()
		if err := efi.Variables(root, map[string][]byte{efi.SecureBoot: {1}, efi.MokList: efi.Certs(vendor), efi.DB: efi.Certs(microsoft), efi.Level: []byte(c.level)}); err != nil {
			t.Fatal(err)
		}
		firmware, err := secureboot.Read(filepath.Join(root, "sys/firmware/efi"))
		if err != nil {
			t.Fatal(err)
		}
		judge, err := firmware.WithShim(bytes.NewReader(c.shim), int64(len(c.shim)))
		refusal, refused := errors.AsType[*secureboot.Refusal](err)
		if refused != (c.refused != "") || refused && !strings.Contains(refusal.Why, c.refused) || (err != nil && !refused) != (c.unsure != "") {
			t.Errorf("%s: error %v", c.name, err)
			continue
		}
		if err != nil {
			continue
		}
		if newer, older := judge.Check(bytes.NewReader(kernel), int64(len(kernel))), judge.Check(bytes.NewReader(old), int64(len(old))); (newer == nil) != c.startsNew || (older == nil) != c.startsOld {
			t.Errorf("%s: the new kernel: %v, the old one: %v", c.name, newer, older)
		}
	}
}

// TestUnknown: where there are no variables, nobody knows whether Secure Boot is on.
func TestUnknown(t *testing.T) {
	root := t.TempDir()
	if err := efi.Variables(root, nil); err != nil {
		t.Fatal(err)
	}
	if firmware, err := secureboot.Read(filepath.Join(root, "sys/firmware/efi")); err == nil {
		t.Errorf("the firmware is %v", firmware)
	}
}
