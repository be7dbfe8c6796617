package firstboot

import (
	"errors"
	"io/fs"
	"slices"
	"strings"

	"machine-pivot/fault"
	"machine-pivot/kargs"
	"machine-pivot/pinning"
	"machine-pivot/pivot"
)

// partition holds CPU partitioning as it will be after the reboot against the
// CPUs that will be online then: the target's files and those that the machine
// has already, since Ignition writes them before a first boot. What would keep
// CRI-O from starting, or leave pods without a CPU, is an error; what is only
// doubtful is a warning.
func (m *Machine) partition(state pivot.State, target pivot.Target) (warnings []string, err error) {
	plan, err := pivot.Diff(state, target)
	if err != nil {
		return nil, err
	}
	in, err := m.partitionInput(plan.Kargs.Final)
	if err != nil {
		return nil, err
	}
	files, err := m.files(target.Files)
	if err != nil {
		return nil, err
	}
	for _, f := range files {
		in.Files[f.Path] = f.Content
	}
	result := pinning.Inspect(in)
	if _, asked := in.Files[pinning.KubeletPath]; !asked && len(result.Workloads) == 0 {
		return nil, nil // the feature is off
	}
	var wrong []string
	for _, p := range result.Problems {
		if line := p.Path + ": " + p.Message; p.Severity == pinning.Error {
			wrong = append(wrong, line)
		} else {
			warnings = append(warnings, line)
		}
	}
	if len(wrong) > 0 {
		return warnings, fault.New(fault.BadInput, "cannot use the CPU partitioning that the next boot would have: %s", strings.Join(wrong, "; ")).
			WithHint("correct the CPU set, the file or the kernel argument that it names; nothing was changed")
	}
	return warnings, nil
}

// checkPartition is the part of the preflight that has to do with CPUs.
func (m *Machine) checkPartition(state pivot.State, target pivot.Target) error {
	warnings, err := m.partition(state, target)
	for _, w := range warnings {
		m.Progress.Note("warning: " + w)
	}
	return err
}

// partitionDrift is what came to be wrong with the CPU partitioning that was
// asked for, beyond changes of its own files: another drop-in that replaces it,
// CPUs that are offline.
func (m *Machine) partitionDrift(state pivot.State, target pivot.Target) ([]string, error) {
	if !slices.ContainsFunc(target.Paths(), pinning.IsPinningPath) {
		return nil, nil
	}
	in, err := m.partitionInput(state.Cmdline)
	if err != nil {
		return nil, err
	}
	var drift []string
	result := pinning.Inspect(in)
	for _, p := range result.Problems {
		if p.Severity == pinning.Error {
			drift = append(drift, "file "+p.Path+": "+p.Message)
		}
	}
	for _, name := range result.Workloads.Names() {
		if off := result.Workloads[name].Intersection(in.Machine.Present).Difference(in.Machine.Online); !off.IsEmpty() {
			drift = append(drift, "CPU "+off.String()+" of workload "+name+": offline")
		}
	}
	return drift, nil
}

// partitionInput is what the machine has of CPU partitioning, with a command line.
// Where there is no sysfs its CPUs are not known.
func (m *Machine) partitionInput(line kargs.Line) (pinning.Input, error) {
	files, err := m.Host.PartitionFiles()
	if err != nil {
		return pinning.Input{}, err
	}
	cpus, err := m.Host.CPUs()
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return pinning.Input{}, err
	}
	return pinning.Input{Files: files, Machine: cpus, Line: line}, nil
}
