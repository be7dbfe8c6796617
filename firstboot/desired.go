package firstboot

import (
	"errors"
	"io/fs"
	"runtime"
	"slices"

	"machine-pivot/internal/encapsulated"
	"machine-pivot/internal/fault"
	"machine-pivot/internal/host"
	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/machineconfig/spec"
	"machine-pivot/internal/osimage/imageref"
	"machine-pivot/kargs"
	"machine-pivot/pivot"
)

// judge is what must be known of this machine to judge a MachineConfig.
func (m *Machine) judge() (encapsulated.Host, error) {
	cpus, err := m.Host.PresentCPUs()
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return encapsulated.Host{}, err
	}
	policy, err := m.Host.KargPolicy()
	return encapsulated.Host{CPUs: cpus, CheckImage: imageref.Check, Policy: &policy, Architecture: runtime.GOARCH}, err
}

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

// imageKargsChoice is what is chosen for the kernel arguments that an image brings.
func (m *Machine) imageKargsChoice() (pivot.ImageKargsChoice, error) {
	settings, err := m.settings()
	return pivot.ImageKargsChoice{Apply: settings.ImageKargs == host.ImageKargsApply, ForThisRun: m.ImageKargs != ""}, err
}

// image is what a reference names; it has no digest yet if that is a tag.
func image(text string) (pivot.Image, error) {
	if text == "" {
		return pivot.Image{}, nil
	}
	ref, err := imageref.Parse(text)
	if err != nil {
		return pivot.Image{}, fault.New(fault.BadInput, "%w", err)
	}
	return pivot.Image{Reference: ref.String(), Digest: ref.Digest()}, nil
}

// arguments are the kernel arguments of entries, which must meet the machine's policy.
func (m *Machine) arguments(entries []string) (kargs.Line, error) {
	policy, err := m.Host.KargPolicy()
	if err != nil {
		return nil, err
	}
	line, err := policy.ParseEntries(entries)
	if err != nil {
		return nil, fault.New(fault.BadInput, "%w", err)
	}
	return line, nil
}
