package kargs

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// MaxLength is the maximum length of a command line, in bytes, on all supported architectures. COMMAND_LINE_SIZE, with
// the terminator, is 2048 on x86_64, arm64 and ppc64le, by default 4096 on s390x, and 896 in old kernels. The kernel
// silently truncates longer lines. GRUB takes the limit from a kernel for x86, and leaves out the first argument that
// does not fit and all after it.
const MaxLength = 2047

// loaderKeys returns the keys that boot loaders put before the arguments of a boot entry: GRUB the kernel's file,
// systemd-boot each initramfs. The default policy lets nobody else write them.
func loaderKeys() []string { return []string{"BOOT_IMAGE", "initrd"} }

// ByLoader returns what the boot loader has put before the arguments of a boot entry, given the line of the kernel that it
// has started.
func (l Line) ByLoader(entry Line) (before Line) {
	for _, arg := range l.kernelPart() {
		if key, _, _ := parts(arg); slices.Contains(loaderKeys(), key) && !slices.Contains(entry, arg) {
			before = append(before, arg)
		}
	}
	return before
}

// Fits returns an error if the kernel would not get all of the line, the arguments of a boot entry. What the boot loader
// puts before it counts; IgnitionVariable does not, for which GRUB puts nothing once Ignition has run.
func (l Line) Fits(before Line) error {
	own := slices.DeleteFunc(slices.Clone(l), func(arg string) bool { return arg == IgnitionVariable })
	n := len(slices.Concat(before, own).String())
	if n <= MaxLength {
		return nil
	}
	with := ""
	if len(before) > 0 {
		with = fmt.Sprintf(" with what the boot loader puts before it (%s)", strings.Join(before, " "))
	}
	return fmt.Errorf("%d bytes%s, more than the %d that a kernel takes: it cuts off the rest", n, with, MaxLength)
}

// Fits returns an error if the change of a boot entry makes a line of which the kernel would not get all; see Line.Fits.
// A line that is too long already may stay and become shorter: what has arrived so far and stays, still arrives.
func (r Result) Fits(booted, before Line) error {
	err := r.Final.Fits(before)
	shorter := len(r.Appended)+len(r.Respelled) == 0 && len(r.Final.String()) <= len(booted.String())
	if err == nil || shorter || r.Final.Equal(booted) {
		return nil
	}
	return errors.New("the command line would have " + err.Error())
}
