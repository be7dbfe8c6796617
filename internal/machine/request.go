package machine

import (
	"errors"
	"io/fs"
	"runtime"
	"slices"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/machineconfig"
	"machine-pivot/internal/pinning"
	"machine-pivot/internal/projection"
	"machine-pivot/internal/settings"
	"machine-pivot/kargs"
	"machine-pivot/pivot"
)

// Facts returns what must be known about this machine to validate a MachineConfig.
func (m *Machine) Facts() (machineconfig.Host, error) {
	cpus, err := m.Host.PresentCPUs()
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return machineconfig.Host{}, err
	}
	policy, err := m.Host.KargPolicy()
	return machineconfig.Host{CPUs: pinning.CPUsOnly(cpus), Policy: &policy, Architecture: runtime.GOARCH}, err
}

// Request returns what a MachineConfig asks of the machine. before are the MachineConfigs that
// it replaces.
func (m *Machine) Request(desired *machineconfig.MachineConfig, before ...*machineconfig.MachineConfig) (req pivot.Request, err error) {
	entries, err := m.EntriesOf(desired)
	if err != nil {
		return req, err
	}
	req.Entries, req.Units = m.projected(entries), desired.Units
	req.Checks = []pivot.Check{func(pivot.Plan) error { return m.checkFIPS(desired) }}
	req.Kargs.Literal = desired.FromCluster
	for _, b := range before {
		req.Kargs.Old = append(req.Kargs.Old, machineconfig.CommandLine(b.KernelArguments)...)
	}
	if req.Kargs.New, err = m.Arguments(desired.KernelArguments); err != nil {
		return req, err
	}
	if req.ImageKargs, err = m.ImageKargsChoice(); err != nil {
		return req, err
	}
	req.Packages, req.Image = Packages(desired, before...), pivot.ImageOf(desired.OSImageURL)
	return req, nil
}

// EntriesOf returns the entries of a MachineConfig. Existing directories keep the attributes
// that it does not set.
func (m *Machine) EntriesOf(desired *machineconfig.MachineConfig) ([]hostfiles.File, error) {
	return EntriesIn(desired, m.ReadEntry)
}

// EntriesIn is Machine.EntriesOf for a system that is read by a function.
func EntriesIn(desired *machineconfig.MachineConfig, read func(path string) (hostfiles.File, bool, error)) ([]hostfiles.File, error) {
	all := slices.Clone(desired.Entries)
	for i, f := range all {
		keeps, asked := desired.Keeps[f.Path]
		if !asked {
			continue
		}
		have, _, err := read(f.Path)
		if err != nil {
			return nil, err
		}
		if have.Kind == hostfiles.KindDirectory {
			all[i].Entry = keeps.Of(have.Entry, f.Entry)
		}
	}
	return all, nil
}

// ImageKargsChoice returns whether to apply the kernel arguments that an image brings. By default they are applied
// where bootc manages the machine. It adds only what an image has more than the one before, so that what is left out
// once would stay out.
func (m *Machine) ImageKargsChoice() (pivot.ImageKargsChoice, error) {
	chosen, err := m.Settings()
	apply := chosen.ImageKargs == settings.ImageKargsApply || chosen.ImageKargs == settings.ImageKargsAuto && m.Host.OfBootc()
	return pivot.ImageKargsChoice{Apply: apply, ForThisRun: m.ImageKargs != ""}, err
}

// Arguments parses entries of kernel arguments. It returns an error if they violate the
// machine's policy.
func (m *Machine) Arguments(entries []string) (kargs.Line, error) {
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

// ReadEntry reads what is at the path of an entry. A password is returned even if it is locked.
func (m *Machine) ReadEntry(name string) (f hostfiles.File, there bool, err error) {
	switch {
	case projection.Outside(name):
		return hostfiles.Look(m.Host.Root, name)
	case hostfiles.Entry{Path: name}.OnDisk() != name:
		return hostfiles.LineOfPassword(m.Host.Root, name)
	}
	return hostfiles.Read(m.Host.Root, name)
}
