package secureboot

import (
	"bytes"
	"os"
	"testing"

	"machine-pivot/test/worlds/efi"
)

// FuzzCheck: a damaged program, or a damaged list, is never an accident, and never a way in: what is started has the content that
// was signed.
func FuzzCheck(f *testing.F) {
	read := func(name string) []byte {
		content, err := os.ReadFile("testdata/" + name)
		if err != nil {
			f.Fatal(err)
		}
		return content
	}
	good, vendor := read("signed.efi"), efi.List(efi.X509, read("vendor.der"))
	f.Add(good, vendor, []byte("linux,3"))
	f.Add(efi.Unsigned(good), efi.List(efi.SHA256, efi.Hash(good)), []byte{})
	f.Add(good[:0x500], append(efi.List(efi.SHA256, make([]byte, 32)), vendor...), []byte("linux,x\n,,"))
	trusting := &Judge{shim: true, allowed: readDatabase(vendor, true)}
	f.Fuzz(func(t *testing.T, program, lists, level []byte) {
		for _, shim := range []bool{true, false} {
			j := &Judge{shim: shim, allowed: readDatabase(lists, shim), denied: readDatabase(level, shim), level: readLevel(level)}
			_ = j.Check(bytes.NewReader(program), int64(len(program)))
		}
		if p, err := open(bytes.NewReader(program), int64(len(program))); err == nil {
			_, _, _ = p.vendor()
		}
		if err := trusting.Check(bytes.NewReader(program), int64(len(program))); err == nil && !bytes.Equal(efi.Hash(program), efi.Hash(good)) {
			t.Errorf("a program is started that was not signed: %q", program)
		}
	})
}
