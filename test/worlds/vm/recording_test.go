package vm_test

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"machine-pivot/test/worlds/vm"
)

const sector = 512

// logOf returns a log of writes in QEMU's format. Each entry is a sector number, the byte to fill
// the sector with (0: no write), and flags.
func logOf(entries ...[3]uint64) []byte {
	le := binary.LittleEndian
	block := func(words ...uint64) []byte {
		b := make([]byte, sector)
		for i, w := range words {
			le.PutUint64(b[8*i:], w)
		}
		return b
	}
	log := block(0x6a736677736872, 1, uint64(len(entries)), sector)
	for _, e := range entries {
		if e[1] == 0 {
			log = append(log, block(e[0], 0, e[2], 0)...)
			continue
		}
		log = append(log, block(e[0], 1, e[2], sector)...)
		log = append(log, bytes.Repeat([]byte{byte(e[1])}, sector)...)
	}
	return log
}

// TestRecording rebuilds a disk of four sectors at each point of a recording.
func TestRecording(t *testing.T) {
	const flush, fua = 1, 2
	dir := t.TempDir()
	base, log, dst := filepath.Join(dir, "base"), filepath.Join(dir, "log"), filepath.Join(dir, "dst")
	write := func(path string, content []byte) {
		if err := os.WriteFile(path, content, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write(base, make([]byte, 4*sector))
	write(log, logOf([3]uint64{0, 1, 0}, [3]uint64{0, 0, flush}, [3]uint64{1, 2, 0}, [3]uint64{2, 3, fua}, [3]uint64{0, 4, 0}))
	r, err := vm.OpenRecording(dir)
	if err != nil {
		t.Fatal(err)
	}
	if r.Len() != 5 || !slices.Equal(r.Flushes(), []int{1}) {
		t.Fatalf("%d entries, flushes %v", r.Len(), r.Flushes())
	}
	rebuilt := func(c vm.Cut) [3]byte {
		if err := r.Rebuild(t.Context(), c, dst); err != nil {
			t.Fatal(err)
		}
		disk, err := os.ReadFile(dst)
		if err != nil {
			t.Fatal(err)
		}
		return [3]byte{disk[0], disk[sector], disk[2*sector]}
	}
	for before, want := range [][3]byte{{}, {1}, {1}, {1, 2}, {1, 2, 3}, {4, 2, 3}} {
		if got := rebuilt(vm.Cut{Before: before}); got != want {
			t.Errorf("before write %d: %v, want %v", before, got, want)
		}
	}
	seen := map[[3]byte]bool{}
	for seed := range uint64(40) {
		got := rebuilt(vm.Cut{Before: 5, Drop: true, Seed: seed})
		if got[2] != 3 {
			t.Errorf("seed %d: a write that is durable by itself is lost: %v", seed, got)
		}
		seen[got] = true
	}
	// The flushed write stays; each of the two others may be lost.
	if len(seen) != 4 || !seen[[3]byte{1, 0, 3}] || !seen[[3]byte{4, 2, 3}] {
		t.Errorf("disks that come out: %v", seen)
	}
	write(log, logOf([3]uint64{0, 1, 0})[:sector+100])
	if _, err := vm.OpenRecording(dir); err == nil {
		t.Error("a log that ends in an entry is read")
	}
}
