package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"machine-pivot/test/worlds/bootlab"
	"machine-pivot/test/worlds/vm"
)

// show is a demonstration.
type show struct {
	w      io.Writer
	claims *bootlab.Claims
	parts  *parts
	boxed  bool // its machines boot in boxes, not in QEMU

	world   *bootlab.Lab
	machine *vm.Machine  // of the first act, and of those that follow on it
	want    bootlab.Want // its first target
	next    string       // the next version of its image
}

// demo shows a first boot, and further acts.
func (s *show) demo(ctx context.Context, acts ...func(context.Context) error) (err error) {
	heading(s.w, "building pivot, OS A, its successor B, and a registry that serves B (some minutes the first time)")
	if err := s.build(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.world.Close()) }()
	s.parts.next("images and disks")
	if err := s.provision(ctx); err != nil {
		return err
	}
	for _, act := range append([]func(context.Context) error{s.firstBoot}, acts...) {
		if err := act(ctx); err != nil {
			return err
		}
	}
	if s.boxed {
		heading(s.w, "what this does not show: the machines had this host's kernel")
		fmt.Fprintln(s.w, "kernel, initramfs, boot loader, kexec and SELinux took no part: make demo-vm boots a machine in QEMU, make demo-enter a first boot in the initramfs")
	}
	fmt.Fprintf(s.w, "\n%s\n", s.parts)
	return s.claims.Err()
}

// build makes what is not cached, with a line now and then about what takes long.
func (s *show) build(ctx context.Context) (err error) {
	s.parts.next("programs and guest")
	progress := startProgress(s.w, "building the programs")
	defer progress.stop()
	// The oldest release with a libostree that can roll back.
	s.world, err = bootlab.NewOf(ctx, ".", vm.GuestSpec{Suite: vm.Trixie}, progress)
	return err
}

// provision makes the machine of the first act, with what Ignition writes.
func (s *show) provision(ctx context.Context) (err error) {
	s.want = s.world.Wanted()
	if s.want.Image, err = s.world.Derived(ctx); err != nil {
		return err
	}
	base, derived, err := s.world.Inspect(ctx, s.want.Image)
	if err != nil {
		return err
	}
	fmt.Fprintf(s.w, "A is ostree commit %s\n%s\n", s.world.Guest.CommitA, served(s.want.Image, base, derived))
	heading(s.w, "MachineConfigs for image, kernel arguments and CPU pinning; pivotctl config ignition; and Ignition writes")
	files, err := s.world.Provision(ctx, s.want)
	if err != nil {
		return err
	}
	for _, f := range files {
		fmt.Fprintln(s.w, "  "+f.Path)
	}
	next, err := s.world.DerivedVersion(ctx, 2)
	if err != nil {
		return err
	}
	s.next = next.Reference
	forLater, err := dayTwoFiles(s.want, s.next)
	if err != nil {
		return err
	}
	s.machine, _, err = s.newMachine(ctx, "demo", bootlab.Setup{Files: append(files, forLater...)})
	return err
}

// firstBoot shows the first boot, and proves it.
func (s *show) firstBoot(ctx context.Context) error {
	heading(s.w, powerOn)
	first, story, err := s.live(ctx, s.machine, vm.BootOptions{})
	if err != nil {
		return err
	}
	heading(s.w, powerOnAgain(first))
	second, proof, err := s.live(ctx, s.machine, vm.BootOptions{})
	if err != nil {
		return err
	}
	heading(s.w, proven)
	if err := prove(s.w, s.claims, s.want, first, second); err != nil {
		return err
	}
	if err := bootlab.CheckStories(story, proof); err != nil {
		return err
	}
	return picture(s.w, second)
}

func heading(w io.Writer, text string) { fmt.Fprintf(w, "\n=== %s\n", text) }

// live powers a machine on and prints its console story as it happens.
func (s *show) live(ctx context.Context, machine *vm.Machine, o vm.BootOptions) (*vm.BootResult, *bootlab.Story, error) {
	s.parts.next("boots")
	defer s.parts.next("images and disks")
	also := o.OnLine
	start := time.Now()
	story := &bootlab.Story{Tell: func(line string) { fmt.Fprintln(s.w, timed(time.Since(start), line)) }}
	o.OnLine = func(line string) {
		story.Line(line)
		if also != nil {
			also(line)
		}
	}
	result, err := machine.Boot(ctx, o)
	return result, story, err
}

// timed returns a console line with its time.
func timed(at time.Duration, line string) string {
	return fmt.Sprintf("%6.1f s  %.150s", at.Seconds(), line)
}
