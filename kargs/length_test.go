package kargs_test

import (
	"strings"
	"testing"

	"machine-pivot/kargs"
)

// argument returns an argument of n bytes.
func argument(n int) string { return "x=" + strings.Repeat("y", n-len("x=")) }

// TestFits: what the kernel gets must fit: with what the boot loader puts before the arguments of the entry, and
// without GRUB's variable for Ignition.
func TestFits(t *testing.T) {
	const image = "BOOT_IMAGE=(hd0,gpt3)/boot/ostree/os-1/vmlinuz-6.1"
	for name, c := range map[string]struct {
		before kargs.Line
		with   string // besides the argument, with its space
	}{
		"nothing else":     {},
		"GRUB":             {before: kargs.Line{image}, with: image + " "},
		"systemd-boot":     {before: kargs.Line{`initrd=\os\a`, `initrd=\os\b`}, with: `initrd=\os\a initrd=\os\b `},
		"a long way to it": {before: kargs.Line{argument(kargs.MaxLength - 10)}, with: argument(kargs.MaxLength-10) + " "},
	} {
		for over, fits := range map[int]bool{-1: true, 0: true, 1: false} {
			line := kargs.Line{argument(kargs.MaxLength - len(c.with) + over)}
			for _, l := range []kargs.Line{line, append(line, kargs.IgnitionVariable)} {
				err := l.Fits(c.before)
				if (err == nil) != fits || err != nil && (!strings.Contains(err.Error(), "2048 bytes") || strings.Contains(err.Error(), "boot loader") != (len(c.before) > 0)) {
					t.Errorf("%s, %d over, %d arguments: %v", name, over, len(l), err)
				}
			}
		}
	}
}

// TestByLoader: what a boot loader has put before the arguments of an entry is told from what the entry has.
func TestByLoader(t *testing.T) {
	for _, c := range []struct{ running, entry, want string }{
		{"BOOT_IMAGE=(hd0,gpt3)/k root=/a ostree=/o", "root=/a ostree=/o", "BOOT_IMAGE=(hd0,gpt3)/k"},
		{`initrd=\a initrd=\b root=/a`, "root=/a", `initrd=\a initrd=\b`},
		{`BOOT_IMAGE=/k initrd=\a ignition.firstboot ip=dhcp root=/a quiet`, "$ignition_firstboot root=/a", `BOOT_IMAGE=/k initrd=\a`},
		{"BOOT_IMAGE=/k initrd=/own rw", "initrd=/own rw", "BOOT_IMAGE=/k"},
		{"BOOT_IMAGE=/k rw", "BOOT_IMAGE=/k rw", ""}, // as kexec --reuse-cmdline may have left it
		{"root=/a -- BOOT_IMAGE=/k", "root=/a --", ""},
		{"root=/a", "root=/a", ""},
		{"", "", ""},
	} {
		if got := kargs.Split(c.running).ByLoader(kargs.Split(c.entry)); got.String() != c.want {
			t.Errorf("%q with %q: %q, want %q", c.running, c.entry, got, c.want)
		}
	}
}

// TestChangeFits: a line that is too long already may stay and become shorter, but gets nothing more.
func TestChangeFits(t *testing.T) {
	before, long := kargs.Line{argument(100)}, argument(kargs.MaxLength-100)
	for name, c := range map[string]struct {
		booted, new, del string
		fits             bool
	}{
		"to the limit":          {"rw", argument(kargs.MaxLength - 100 - len(" rw ")), "", true},
		"over it":               {"rw", argument(kargs.MaxLength - 100 - len(" rw ") + 1), "", false},
		"too long, and stays":   {long + " quiet", "", "", true},
		"shorter, but too long": {long + " quiet", "", "quiet", true},
		"short enough":          {long + " quiet", "", argument(len(long)), true},
		"one for another":       {long + " quiet", "debug", "quiet", false},
		"one for a shorter":     {long + " quiet", "nosmt", "quiet", false},
		"another spelling":      {long + " a-b quiet", "a_b", "quiet", false},
		"moved to the end":      {long + " a=1 a=2", "a=1", "", false},
	} {
		booted := kargs.Split(c.booted)
		result, err := kargs.Change{New: kargs.Split(c.new), Delete: kargs.Split(c.del)}.Apply(booted)
		if err != nil {
			t.Fatal(name, err)
		}
		if err := result.Fits(booted, before); (err == nil) != c.fits || err != nil && !strings.HasPrefix(err.Error(), "the command line would have ") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
