package vm

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestDiskFormat checks that a qcow2 file is distinguished from a raw disk, and that QEMU gets the
// right format for each.
func TestDiskFormat(t *testing.T) {
	file := filepath.Join(t.TempDir(), "disk")
	for content, want := range map[string]string{"QFI\xfb\x00\x00\x00\x03": "qcow2", "\xebc\x90\x00": "", "QFI?": ""} {
		if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		format, err := diskFormat(file)
		if err != nil || format != want {
			t.Errorf("%q: %q, %v; want %q", content, format, err, want)
		}
		args := qemu{disk: file, format: format}.command(t.Context()).Args
		if layered := strings.Contains(strings.Join(args, " "), "driver=qcow2,node-name=image,file=disk"); layered != (want == "qcow2") {
			t.Errorf("%q: %q", content, args)
		}
		if slices.Contains(args, "-kernel") {
			t.Errorf("%q: a kernel is given past the disk's boot loader: %q", content, args)
		}
	}
	for name, content := range map[string]string{"empty": "", "short": "QF"} {
		if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := diskFormat(file); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
