package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"machine-pivot/internal/pinning"
	"machine-pivot/test/worlds/bootlab"
	"machine-pivot/test/worlds/registry"
	"machine-pivot/test/worlds/vm"
)

// marker is a kernel argument without meaning to the kernel.
const marker = "hosttest.arrived"

// hostCase is a first boot, followed by a rollback.
type hostCase struct {
	name string
	want bootlab.Want
	slow bool // the first boots of others are slow
}

// cases returns the cases that can be run. Without an OS image the system keeps its own. The OS
// image is copied to the registry for the machines.
func (s settings) cases(ctx context.Context, dir string, images *registry.Registry) ([]hostCase, error) {
	set, err := pinning.ParseCPUSet("0")
	if err != nil {
		return nil, err
	}
	want := bootlab.Want{Kargs: []string{"nohz=on", marker}, Pinning: pinning.Workloads{"management": set}}
	cases := []hostCase{{name: "kernel arguments and CPU pinning", want: want}, {name: "the same, beside slow first boots of Ignition and systemd", want: want, slow: true}}
	if s.osImage != "" {
		if want.Image, err = copyImage(ctx, dir, s.osImage, images); err != nil {
			return nil, err
		}
		cases = append(cases, hostCase{name: "OS image, kernel arguments and CPU pinning", want: want})
	}
	return cases, nil
}

// try runs a case and reports whether all claims hold. access is the files that let the machine
// pull the image.
func (s settings) try(ctx context.Context, dir string, c hostCase, access []vm.TreeFile) (holds bool, err error) {
	config, err := machineConfig(c, access)
	if err == nil {
		config, err = s.ignitionConfig(ctx, dir, c.want.Image, config)
	}
	if err != nil {
		return false, err
	}
	url, stop, err := serve(config)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	machine, err := s.machine(ctx, dir, url, config)
	if err != nil {
		return false, err
	}
	return s.boots(ctx, machine, c.want)
}

// boots powers the machine on three times: it pivots; it has arrived and rolls back; it runs the
// old system again.
func (s settings) boots(ctx context.Context, m machine, want bootlab.Want) (bool, error) {
	claims := claims{bootlab.Claims{To: s.stdout}}
	first, reported, err := boot(ctx, m, vm.BootOptions{ExtraArgs: []string{"ignition.firstboot", "rd.neednet=1"}})
	if err != nil {
		return false, err
	}
	claims.Add(first.Exit == vm.Rebooted && reported == nil, "power-on 1: it %s after %.0f s, without a report", first.Exit, first.Duration.Seconds())
	if claims.Failed > 0 {
		return false, explain(s, reported, first)
	}
	second, arrived, err := boot(ctx, m, vm.BootOptions{})
	if err != nil {
		return false, err
	}
	claims.arrived(arrived, want)
	claims.Add(arrived != nil && second.Exit == vm.Rebooted, "power-on 2: pivot rollback -r: it %s after %.0f s %s", second.Exit, second.Duration.Seconds(), arrived["rollback"])
	if claims.Failed > 0 {
		return false, explain(s, arrived, second)
	}
	third, back, err := boot(ctx, m, vm.BootOptions{})
	if err != nil {
		return false, err
	}
	claims.back(back, arrived, want)
	claims.Add(third.Exit == vm.PoweredOff, "power-on 3: no further reboot: it %s after %.0f s", third.Exit, third.Duration.Seconds())
	if claims.Failed > 0 {
		return false, explain(s, back, third)
	}
	return true, nil
}

// boot powers the machine on once and reads its report.
func boot(ctx context.Context, m machine, o vm.BootOptions) (*vm.BootResult, report, error) {
	result, err := m.Boot(ctx, o)
	if err != nil {
		console, keepErr := result.Keep()
		return result, nil, errors.Join(fmt.Errorf("%w; its console is in %s", err, console), keepErr)
	}
	r, err := parseReport(result.Reported)
	return result, r, err
}

// explain prints the report of a boot with failed claims.
func explain(s settings, r report, b *vm.BootResult) error {
	for _, name := range []string{"status", "verify", "failed", "journal"} {
		if r[name] != "" {
			fmt.Fprintf(s.stdout, "%s:\n  %s\n", name, strings.ReplaceAll(r[name], "\n", "\n  "))
		}
	}
	console, err := b.Keep()
	fmt.Fprintln(s.stdout, "the console of this boot:", console)
	return err
}
