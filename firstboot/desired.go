package firstboot

import (
	"slices"

	"machine-pivot/internal/encapsulated"
	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/machineconfig/spec"
	"machine-pivot/pivot"
)

// asking is what a MachineConfig asks of the machine, in place of those that it had before.
func (m *Machine) asking(desired *encapsulated.Desired, before ...*encapsulated.Desired) (ask pivot.Ask, err error) {
	entries, err := m.keeping(desired)
	if err != nil {
		return ask, err
	}
	ask.Entries, ask.Units = m.projected(entries), desired.Units
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

// keeping are the entries of a MachineConfig, where directories that are there already keep
// of their own what it asks nothing for.
func (m *Machine) keeping(desired *encapsulated.Desired) ([]hostfiles.File, error) {
	all := slices.Clone(desired.Entries)
	for i, f := range all {
		keeps, asked := desired.Keeps[f.Path]
		if !asked {
			continue
		}
		have, _, err := m.standing(f.Path)
		if err != nil {
			return nil, err
		}
		if have.Kind == hostfiles.KindDirectory {
			all[i].Entry = keeps.Of(have.Entry, f.Entry)
		}
	}
	return all, nil
}
