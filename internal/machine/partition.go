package machine

import (
	"errors"
	"io/fs"
	"slices"
	"strings"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/host"
	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/pinning"
	"machine-pivot/internal/problem"
	"machine-pivot/kargs"
	"machine-pivot/pivot"
)

// partition contributes the machine's CPU partitioning. Ignition writes it before a first
// boot; a pivot by hand finds it in place.
type partition struct{ host *host.Host }

var _ pivot.Contributor = partition{}

// Entries implements pivot.Contributor. It leaves out unchanged files of the image, because the
// next image brings its own. A first boot adopts what Ignition wrote: files that are only carried over
// could be missing on the next boot unnoticed.
func (p partition) Entries() ([]hostfiles.File, error) {
	in, err := p.input(nil)
	if err != nil {
		return nil, err
	}
	paths := pinning.Inspect(in).Files
	have, err := hostfiles.ReadAll(p.host.Root, paths)
	if err != nil {
		return nil, err
	}
	shipped, err := hostfiles.ReadAll(p.host.Path("/usr"), paths) // the image's /usr/etc
	if err != nil {
		return nil, err
	}
	var own []hostfiles.File
	for _, path := range paths {
		if f, ok := have[path]; ok && f.Entry != shipped[path].Entry {
			own = append(own, f)
		}
	}
	return own, nil
}

// Check implements pivot.Contributor. It checks CPU partitioning as it will be after the
// reboot against the CPUs that will be online then. What would keep CRI-O from starting, or
// leave pods without a CPU, is an error; anything else that looks wrong is a warning.
func (p partition) Check(plan pivot.Plan, entries []hostfiles.File) (warnings []string, err error) {
	in, err := p.input(plan.Kargs.Final)
	if err != nil {
		return nil, err
	}
	for _, f := range entries {
		switch f.Kind {
		case hostfiles.KindFile:
			in.Files[f.Path] = f.Content
		case hostfiles.KindDefault, hostfiles.KindAbsent:
			delete(in.Files, f.Path)
		}
	}
	result := pinning.Inspect(in)
	if _, asked := in.Files[pinning.KubeletPath]; !asked && len(result.Workloads) == 0 {
		return nil, nil // the feature is off
	}
	var wrong []string
	for _, p := range result.Problems {
		if p.Severity == problem.Error {
			wrong = append(wrong, p.Text())
		} else {
			warnings = append(warnings, p.Text())
		}
	}
	if len(wrong) > 0 {
		return warnings, fault.New(fault.BadInput, "cannot use the CPU partitioning that the next boot would have: %s", strings.Join(wrong, "; ")).
			WithHint("correct the CPU set, the file or the kernel argument that it names; nothing was changed")
	}
	return warnings, nil
}

// Drift implements pivot.Contributor. It names drop-ins that override the target's, and CPUs
// that are offline.
func (p partition) Drift(state pivot.State, target pivot.Target) ([]pivot.Difference, error) {
	if !slices.ContainsFunc(target.Paths(), pinning.IsPinningPath) {
		return nil, nil
	}
	in, err := p.input(state.Cmdline)
	if err != nil {
		return nil, err
	}
	var drift []pivot.Difference
	result := pinning.Inspect(in)
	for _, p := range result.Problems.Errors() {
		drift = append(drift, pivot.Difference{Class: pivot.ClassCPU, Name: p.Path, Path: p.Path, Wrong: pivot.WrongDiffers, Message: "file " + p.Text()})
	}
	for _, name := range result.Workloads.Names() {
		if off := result.Workloads[name].Intersection(in.Machine.Present).Difference(in.Machine.Online); !off.IsEmpty() {
			drift = append(drift, pivot.Difference{Class: pivot.ClassCPU, Name: off.String(), Wrong: pivot.WrongMissing, Message: "CPU " + off.String() + " of workload " + name + ": offline"})
		}
	}
	return drift, nil
}

// input returns the machine's CPU partitioning, with a kernel command line. Without sysfs its
// CPUs are not known.
func (p partition) input(line kargs.Line) (pinning.Input, error) {
	files, err := p.host.PartitionFiles()
	if err != nil {
		return pinning.Input{}, err
	}
	cpus, err := p.host.CPUs()
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return pinning.Input{}, err
	}
	return pinning.Input{Files: files, Machine: cpus, Line: line}, nil
}
