package rules

import (
	"debug/elf"
	"os"
	"path/filepath"
	"testing"
)

// maxSize bounds the binary: it travels in initramfs images and in Ignition configs.
// Reading Ignition configs of version 2, for machines that are that old, is 1 MiB of it;
// merging derived layers is 0.3 MiB.
const maxSize = 22 << 20

func TestBinary(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the whole binary")
	}
	dir := t.TempDir()
	run(t, "make", "-s", "build", "BIN="+dir)
	path := filepath.Join(dir, "pivot")
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%.1f MiB", float64(info.Size())/(1<<20))
	if info.Size() > maxSize {
		t.Errorf("the binary has %d bytes, more than %d: what came in? (go version -m, go tool nm -size)", info.Size(), maxSize)
	}
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			t.Error("the binary wants a dynamic loader: it must be static")
		}
	}
}
