package firstboot

import (
	"machine-pivot/internal/encapsulated"
	"machine-pivot/internal/machineconfig/spec"
	"machine-pivot/pivot"
)

// asking is what a MachineConfig asks of the machine, in place of those that it had before.
func (m *Machine) asking(desired *encapsulated.Desired, before ...*encapsulated.Desired) (ask pivot.Ask, err error) {
	ask.Entries, ask.Units = m.projected(desired.Entries), desired.Units
	ask.Checks = []pivot.Check{func(pivot.Plan) error { return m.checkFIPS(desired) }}
	ask.Kargs.Literal = desired.FromCluster
	for _, b := range before {
		ask.Kargs.Old = append(ask.Kargs.Old, spec.CommandLine(b.KernelArguments)...)
	}
	if ask.Kargs.New, err = m.arguments(desired.KernelArguments); err != nil {
		return ask, err
	}
	if ask.ImageKargs, err = m.imageKargsChoice(); err != nil {
		return ask, err
	}
	if ask.Packages, err = packages(desired, before...); err != nil {
		return ask, err
	}
	ask.Image, err = image(desired.Image)
	return ask, err
}
