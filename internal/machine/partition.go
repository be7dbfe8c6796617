package machine

import (
	"errors"
	"io/fs"
	"maps"
	"path"
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
	return p.own(pinning.Inspect(in).Files)
}

// PartitioningIn returns the entries of the CPU partitioning of a deployment: those that a commit adopts, were it the
// running system.
func PartitioningIn(deployment string) ([]hostfiles.Entry, error) {
	files, err := partition{host.New(deployment)}.Entries()
	return hostfiles.Entries(files), err
}

// own returns the files at paths that the machine has and that are not the image's.
func (p partition) own(paths []string) ([]hostfiles.File, error) {
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
	if known, err := p.change(in.Files, plan, entries); err != nil || !known {
		return nil, err
	}
	result := pinning.Inspect(in)
	problems := result.Problems
	if _, asked := in.Files[pinning.KubeletPath]; !asked && len(result.Workloads) == 0 { // the feature is off
		if problems, err = p.brought(plan, problems.Errors()); err != nil {
			return nil, err
		}
	}
	var wrong []string
	for _, p := range problems {
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

// brought returns those errors that a plan brings: not those that the machine has without it. A first boot
// brings the files that Ignition wrote, so that only the image's are there without it.
func (p partition) brought(plan pivot.Plan, wrong problem.Report) (problem.Report, error) {
	in, err := p.input(plan.From().Booted.Options)
	if err != nil || len(wrong) == 0 {
		return nil, err
	}
	if !plan.Request().ByHand {
		own, err := p.own(slices.Collect(maps.Keys(in.Files)))
		if err != nil {
			return nil, err
		}
		for _, f := range own {
			delete(in.Files, f.Path)
		}
	}
	before := pinning.Inspect(in).Problems
	return slices.DeleteFunc(wrong, func(p problem.Problem) bool { return slices.Contains(before, p) }), nil
}

// change changes files, which the machine has, to those of the system that a plan leads to. known is
// false if that needs the content of an image that is not in the repository yet. The check is repeated when it is.
func (p partition) change(files map[string][]byte, plan pivot.Plan, entries []hostfiles.File) (known bool, err error) {
	next := nextFiles{host: p.host, entries: map[string]hostfiles.File{}}
	changes := plan.Image.Changed || plan.To().Image.IsZero() && !plan.Request().Image.IsZero() // a tag that is not resolved yet
	if changes {
		next.commit = plan.To().Image.Commit
	}
	for _, f := range entries {
		next.entries[f.Path] = f
	}
	for _, f := range entries {
		if !pinning.IsRead(f.Path) {
			continue
		}
		if f.Kind == hostfiles.KindDefault && changes && next.commit == "" {
			return false, nil
		}
		content, there, err := next.read(f.Path)
		if changes && errors.Is(err, fs.ErrNotExist) { // an image of an earlier run that was removed since
			return false, nil
		}
		if err != nil {
			return false, err
		}
		if delete(files, f.Path); there {
			files[f.Path] = content
		}
	}
	return true, nil
}

// nextFiles reads files as the next boot will find them.
type nextFiles struct {
	host    *host.Host
	commit  string // of the next image; "": the image stays
	entries map[string]hostfiles.File
}

// maxLinks is the number of symbolic links that the kernel follows for one path.
const maxLinks = 40

// read reads the file at a path, and follows symbolic links, as CRI-O and kubelet do.
func (n nextFiles) read(name string) (content []byte, there bool, err error) {
	for range maxLinks {
		f, there, err := n.look(name)
		if err != nil || !there || f.Kind != hostfiles.KindLink {
			return f.Content, there && f.Kind != hostfiles.KindDirectory, err // /dev/null is an empty file
		}
		if name = f.Target; !path.IsAbs(name) {
			name = path.Join(path.Dir(f.Path), name)
		}
	}
	return nil, false, nil
}

// look returns what is at a path, without following links.
func (n nextFiles) look(name string) (hostfiles.File, bool, error) {
	switch f, asked := n.entries[name]; {
	case !asked:
		return hostfiles.Read(n.host.Root, name)
	case f.Kind == hostfiles.KindAbsent:
		return f, false, nil
	case f.Kind == hostfiles.KindDefault:
		f, there, err := n.host.Shipped(n.commit, name)
		f.Path = name
		return f, there, err
	default:
		return f, true, nil
	}
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
