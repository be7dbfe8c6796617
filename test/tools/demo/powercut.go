package main

import (
	"context"
	"strings"
	"time"

	"machine-pivot/test/worlds/bootlab"
	"machine-pivot/test/worlds/vm"
)

// intoCommit is how long after its beginning the commit loses its power: it takes longer.
const intoCommit = 100 * time.Millisecond

// powerCut shows a first boot on a machine that loses its power during the commit. The disk is then what had been
// flushed.
func (s *show) powerCut(ctx context.Context) error {
	heading(s.w, "a third machine loses its power in the middle of the commit: its disk is what had been flushed")
	files, err := s.world.Provision(ctx, s.want)
	if err != nil {
		return err
	}
	machine, _, err := s.newMachine(ctx, "cut", bootlab.Setup{Files: files})
	if err != nil {
		return err
	}
	cut := make(chan struct{})
	committing := false
	first, _, err := s.live(ctx, machine, vm.BootOptions{Cut: cut, OnLine: func(line string) {
		if !committing && strings.Contains(line, "pivot: commit: ") {
			committing = true
			time.AfterFunc(intoCommit, func() { close(cut) })
		}
	}})
	if err != nil {
		return err
	}
	state, err := machine.Inspect(ctx)
	if err != nil {
		return err
	}
	s.claims.Add(first.Exit == vm.Stopped, "the machine %s, and did not reboot", first.Exit)
	s.claims.Add(len(state.Entries) > 0, "its disk boots a whole system: %s", state.Entries[0].Title)
	last, boots, err := s.untilOff(ctx, machine)
	if err != nil {
		return err
	}
	r, err := last.Report()
	if err != nil {
		return err
	}
	s.claims.Add(r.Version == "B.2" && r.Status.Phase == "done", "after %d boots more: version %s, pivot status: %s", boots, r.Version, r.Status.Phase)
	for _, f := range s.want.PinningFiles() {
		s.claims.Add(r.HasFile(f) == nil, "pinning file %s", f.Path)
	}
	s.claims.Add(r.FailedUnits == "" && r.Kubelet.ActiveState == "active", "no unit has failed, and kubelet runs")
	return s.claims.Err()
}

// mostBoots is how often a machine may reboot until it powers off.
const mostBoots = 3

// untilOff boots a machine until it powers off.
func (s *show) untilOff(ctx context.Context, machine *vm.Machine) (last *vm.BootResult, boots int, err error) {
	for boots < mostBoots && (last == nil || last.Exit == vm.Rebooted) {
		if last, _, err = s.live(ctx, machine, vm.BootOptions{}); err != nil {
			return last, boots, err
		}
		boots++
	}
	return last, boots, nil
}
