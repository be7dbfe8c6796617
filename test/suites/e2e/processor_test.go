package e2e_test

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"os/exec"
	"slices"
	"testing"

	"machine-pivot/test/worlds/bootlab"
	"machine-pivot/test/worlds/vm"
)

// TestOtherProcessor (P97): an image is refused if its C library demands a processor that the machine does not have. The refusal
// has the loader's words, and nothing changes. Used all the same, it does not start. It is part of "make nightly".
func TestOtherProcessor(t *testing.T) {
	l := newLab(t, vm.GuestSpec{})
	const library = "usr/lib/x86_64-linux-gnu/libc.so.6"
	content, err := exec.CommandContext(t.Context(), "ostree", "cat", "--repo="+l.Guest.BareRepo(), l.Guest.CommitB, "/"+library).Output()
	noError(t, err)
	image, err := l.WithFiles(t.Context(), "processor", map[string]string{library: string(demanding(t, content))})
	noError(t, err)
	m := machineWith(t, l, bootlab.Setup{Files: inTurn("pivot rebase " + image + " -r || echo \"@@status $?\"; pivot rebase " + image + " --accept processor -r")})
	b := boot(t, m, vm.BootOptions{})
	expectSaid(t, b, "its /usr/bin/true needs another processor", "CPU ISA level is lower than required", "@@status 78", "accepted (processor)")
	if b.Exit != vm.Rebooted {
		t.Fatalf("the machine %s, want that it reboots", b.Exit)
	}
	b, err = m.Boot(t.Context(), vm.BootOptions{})
	if b.Exit != vm.Panicked || !b.Said("Attempted to kill init! exitcode=0x00007f00") { // 127: of the dynamic loader
		t.Errorf("the new system %s, want that it does not start: %v", b.Exit, err)
	}
}

// demanding returns a library with a note by which it demands a processor of the level x86-64-v4, which QEMU does not
// emulate, in place of the lowest.
func demanding(t *testing.T, library []byte) []byte {
	t.Helper()
	const (
		needed = 0xc0008002 // GNU_PROPERTY_X86_ISA_1_NEEDED
		v4     = 1 << 3     // GNU_PROPERTY_X86_ISA_1_V4
	)
	file, err := elf.NewFile(bytes.NewReader(library))
	noError(t, err)
	section := file.Section(".note.gnu.property")
	if section == nil {
		t.Fatal("the C library has no properties")
	}
	changed, le := slices.Clone(library), binary.LittleEndian
	properties := changed[section.Offset : section.Offset+section.Size]
	for at := 16; at+12 <= len(properties); at += 8 + int(le.Uint32(properties[at+4:])+7)/8*8 {
		if le.Uint32(properties[at:]) == needed {
			le.PutUint32(properties[at+8:], v4)
			return changed
		}
	}
	t.Fatalf("the C library has the properties %x", properties)
	return nil
}
