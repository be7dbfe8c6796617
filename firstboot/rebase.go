package firstboot

import (
	"context"
	"os"

	"machine-pivot/fault"
	"machine-pivot/hostfiles"
	"machine-pivot/pinning"
	"machine-pivot/pivot"
)

// Rebase is an administrator's pivot by hand.
type Rebase struct {
	Machine
	Image   string // "": as PullspecPath says, else the booted image stays
	Append  []string
	Delete  []string
	Pinning pinning.Workloads // none: no pinning file is touched
	Reboot  bool
}

// Asked reports whether anything is asked for at all.
func (r *Rebase) Asked() bool {
	if r.Image != "" || len(r.Append)+len(r.Delete)+len(r.Pinning) > 0 {
		return true
	}
	for _, path := range []string{PullspecPath, KernelArgsPath} {
		if _, err := os.Stat(r.Host.Path(path)); err == nil {
			return true
		}
	}
	return false
}

// Run makes the asked-for system the next boot, and reboots if that is asked
// for. It reports whether anything had to change.
func (r *Rebase) Run(ctx context.Context) (changed bool, err error) {
	changed, err = r.run(ctx)
	if err != nil {
		r.Progress.Fail(err)
	}
	return changed, err
}

func (r *Rebase) run(ctx context.Context) (bool, error) {
	if err := r.open(); err != nil {
		return false, err
	}
	defer r.closeImage()
	settings, err := r.settings()
	if err != nil {
		return false, err
	}
	target, state, err := r.observe(ctx)
	if err != nil {
		return false, err
	}
	switch decision := r.decide(state, target); decision.Action {
	case pivot.Close:
		r.Progress.Note("nothing to do: the machine is what was asked for")
		return false, nil
	case pivot.Reboot:
		r.Progress.Note("nothing to do but to reboot: the next boot is what was asked for")
	default:
		r.Progress.Begin(pivot.StepPreflight, "checking what could fail")
		if err := r.preflight(ctx, state, target); err != nil {
			return false, err
		}
		// A person asks: an attempt that failed before does not count against it.
		if err := r.apply(ctx, state, target, nil, 1); err != nil {
			return true, err
		}
	}
	if !r.Reboot && !r.rebootNeeded() {
		r.Progress.Note("the new system is committed; until the reboot leave /etc and rpm-ostree alone: changes made to /etc stay behind, " +
			"and what is staged on top (rpm-ostree kargs, install) becomes the next boot with the /etc that runs, without the CPU pinning files")
		return true, nil
	}
	return true, r.reboot(ctx, settings.RebootMethod)
}

func (r *Rebase) observe(ctx context.Context) (pivot.Target, pivot.State, error) {
	r.Progress.Begin(pivot.StepRead, "reading what is asked for")
	target, err := r.Target()
	if err != nil {
		return pivot.Target{}, pivot.State{}, err
	}
	r.Progress.Begin(pivot.StepObserve, "looking at the host")
	if target, err = r.pin(ctx, target, r.checkLocal); err != nil {
		return pivot.Target{}, pivot.State{}, err
	}
	if target, err = r.recall(target); err != nil {
		return pivot.Target{}, pivot.State{}, err
	}
	if target, err = r.adopt(target); err != nil {
		return pivot.Target{}, pivot.State{}, err
	}
	state, err := r.Host.Observe(target.Paths())
	return target, state, err
}

// Target turns the command line into values that can be compared with the host. An
// image that is named by a tag has no digest yet.
func (r *Rebase) Target() (pivot.Target, error) {
	change, err := r.kargs()
	if err != nil {
		return pivot.Target{}, err
	}
	files, err := r.pinningFiles()
	if err != nil {
		return pivot.Target{}, err
	}
	target := pivot.Target{Kargs: change, Files: r.know(files)}
	reference, err := r.reference()
	if err != nil {
		return target, err
	}
	target.Image, err = image(reference)
	return target, err
}

// pinningFiles are the files of the asked-for CPU partitioning, held against
// the CPUs that the machine has.
func (r *Rebase) pinningFiles() ([]hostfiles.File, error) {
	if len(r.Pinning) == 0 {
		return nil, nil
	}
	cpus, err := r.Host.PresentCPUs()
	if err != nil {
		return nil, err
	}
	for workload, set := range r.Pinning {
		if lacking := set.Difference(cpus); !lacking.IsEmpty() {
			return nil, fault.New(fault.BadInput, "cannot pin workload %s to CPUs %s: the machine has no CPU %s, only %s",
				workload, set, lacking, cpus)
		}
	}
	return []hostfiles.File{
		{Path: pinning.DropInPath, Mode: 0o644, Content: pinning.DropIn(r.Pinning)},
		{Path: pinning.KubeletPath, Mode: 0o644, Content: pinning.KubeletFile(r.Pinning)},
	}, nil
}
