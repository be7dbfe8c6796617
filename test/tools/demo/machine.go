package main

import (
	"context"
	"io"

	"machine-pivot/test/box"
	"machine-pivot/test/worlds/bootlab"
	"machine-pivot/test/worlds/vm"
)

// newMachine makes a machine, in a box if the demonstration has boxes. Its box is nil otherwise.
func (s *show) newMachine(ctx context.Context, name string, setup bootlab.Setup) (*vm.Machine, *box.Box, error) {
	machine, err := s.world.MachineWith(ctx, name, setup, io.Discard)
	if err != nil {
		return nil, nil, err
	}
	if s.boxed {
		return machine, s.world.InBox(machine), nil
	}
	machine.Extra = []string{"-smp", "2"} // one CPU for management, one for the other pods
	return machine, nil, nil
}
