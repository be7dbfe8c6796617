package firstboot

import (
	"context"
	"os"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/host"
	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/pinning"
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
	changed, err = r.attempt(ctx)
	err = r.stopped(ctx, err)
	if err != nil {
		r.Progress.Fail(err)
	}
	return changed, err
}

func (r *Rebase) attempt(ctx context.Context) (bool, error) {
	if err := r.openToChange(ctx); err != nil {
		return false, err
	}
	defer r.closeImage()
	settings, err := r.settings()
	if err != nil {
		return false, err
	}
	r.Progress.Begin(pivot.StepRead, "reading what is asked for")
	ask, err := r.ask()
	if err != nil {
		return false, err
	}
	return r.move(ctx, ask, settings, r.Reboot || r.rebootNeeded())
}

// move brings the machine to what somebody asks for who waits for the end, and reboots if
// that is wanted. It reports whether anything had to change.
func (m *Machine) move(ctx context.Context, ask pivot.Ask, settings host.Settings, reboot bool) (changed bool, err error) {
	out, err := m.converger().Converge(ctx, ask)
	switch {
	case err != nil:
		return false, err
	case out.Action == pivot.ActionClose:
		m.Progress.Note("nothing to do: the machine is what was asked for")
		return false, nil
	case out.Action == pivot.ActionReboot:
		m.Progress.Note("nothing to do but to reboot: the next boot is what was asked for")
	}
	if !reboot {
		m.Progress.Note("the new system is committed; until the reboot leave /etc and rpm-ostree alone: changes made to /etc stay behind, " +
			"and what is staged on top (rpm-ostree kargs, install) becomes the next boot with the /etc that runs, without the CPU pinning files")
		return true, nil
	}
	return true, m.reboot(ctx, settings.RebootMethod)
}

// Plan works out what a pivot by hand would change and writes nothing.
func (r *Rebase) Plan(ctx context.Context) (pivot.Plan, error) {
	if err := r.open(); err != nil {
		return pivot.Plan{}, err
	}
	ask, err := r.ask()
	if err != nil {
		return pivot.Plan{}, err
	}
	return r.converger().Plan(ctx, ask)
}

// ask is what the command line, with the old tool's files, asks of the machine.
func (r *Rebase) ask() (pivot.Ask, error) {
	change, err := r.kargs()
	if err != nil {
		return pivot.Ask{}, err
	}
	files, err := r.pinningFiles()
	if err != nil {
		return pivot.Ask{}, err
	}
	reference, err := r.reference()
	if err != nil {
		return pivot.Ask{}, err
	}
	choice, err := r.imageKargsChoice()
	if err != nil {
		return pivot.Ask{}, err
	}
	image, err := image(reference)
	return pivot.Ask{Image: image, ImageKargs: choice, Kargs: change, Entries: files, ByHand: true}, err
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
		hostfiles.NewFile(pinning.DropInPath, 0o644, pinning.DropIn(r.Pinning)),
		hostfiles.NewFile(pinning.KubeletPath, 0o644, pinning.KubeletFile(r.Pinning)),
	}, nil
}
