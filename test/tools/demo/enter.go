package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"machine-pivot/internal/settings"
	"machine-pivot/test/worlds/bootlab"
	"machine-pivot/test/worlds/vm"
)

// enter shows a first boot without a reboot: the initramfs of A commits B, which has A's kernel, initramfs and kernel
// arguments, and continues in it.
func (s *show) enter(ctx context.Context) (err error) {
	w := s.w
	heading(w, "building pivot, OS A with pivot in its initramfs, its successor B with the same kernel, and a registry that serves B")
	world, err := bootlab.NewOf(ctx, ".", vm.GuestSpec{SameKernel: true}, w)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, world.Close()) }()
	want := world.Wanted()
	encapsulated, err := want.Encapsulated()
	if err != nil {
		return err
	}
	machine, err := world.MachineWith(ctx, "enter", bootlab.Setup{
		Encapsulated: encapsulated, KernelArgs: want.Kargs, Mode: settings.ModeInitramfs,
		Files: []vm.TreeFile{{Path: settings.Path, Mode: 0o644, Content: []byte("reboot-method=enter\n")}},
	}, io.Discard)
	if err != nil {
		return err
	}
	heading(w, "power on: A's initramfs, then B")
	only, _, err := s.live(ctx, machine, vm.BootOptions{})
	if err != nil {
		return err
	}
	heading(w, proven)
	r, err := only.Report()
	if err != nil {
		return err
	}
	claims := s.claims
	claims.Add(only.Exit == vm.PoweredOff, "no reboot: the only power-on %s by itself", only.Exit)
	claims.Add(!only.Said("Welcome to Guest A.1!"), "A was not started")
	claims.Add(r.Version == "B.2", "B is booted: version %s", r.Version)
	claims.Add(r.Closed && !r.Encapsulated, "the first boot is closed: the file is now .bak")
	claims.Add(r.Kubelet.ActiveState == "active", "kubelet runs")
	claims.Add(r.Status.Phase == "done", "pivot status: %s, attempt %d", r.Status.Phase, r.Status.Attempt)
	for _, f := range want.PinningFiles() {
		claims.Add(r.HasFile(f) == nil, "pinning file %s", f.Path)
	}
	fmt.Fprintln(w)
	return claims.Err()
}
