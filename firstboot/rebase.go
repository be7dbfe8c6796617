package firstboot

import (
	"context"
	"errors"
	"os"
	"runtime"

	"machine-pivot/internal/disruption"
	"machine-pivot/internal/fault"
	"machine-pivot/internal/host"
	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/machineconfig/extensions"
	"machine-pivot/internal/machineconfig/spec"
	"machine-pivot/internal/mcfile"
	"machine-pivot/internal/pinning"
	"machine-pivot/pivot"
)

// Rebase is an administrator's pivot by hand.
type Rebase struct {
	Machine
	Image   string // "": the one in PullspecPath, or else the booted one
	Append  []string
	Delete  []string
	Pinning pinning.Workloads // none: pinning files are not changed
	// KernelType and Extensions are as in a MachineConfig; "" and none change nothing.
	KernelType      string
	Extensions      []string
	ExtensionsImage string // has their packages; "": they come from the machine's own repositories
	Reboot          bool
}

// Asked reports whether anything is asked for, by a field or by the old tool's files.
func (r *Rebase) Asked() bool {
	if r.Image != "" || r.KernelType != "" || len(r.Append)+len(r.Delete)+len(r.Pinning)+len(r.Extensions) > 0 {
		return true
	}
	for _, path := range []string{PullspecPath, KernelArgsPath} {
		if _, err := os.Stat(r.Host.Path(path)); err == nil {
			return true
		}
	}
	return false
}

// Run makes the requested system the next boot, and reboots if that is asked for. It reports
// whether anything had to change.
func (r *Rebase) Run(ctx context.Context) (changed bool, err error) {
	changed, err = r.attempt(ctx)
	err = r.explainStop(ctx, err)
	r.Progress.End(err)
	return changed, err
}

func (r *Rebase) attempt(ctx context.Context) (bool, error) {
	if err := r.openToChange(ctx); err != nil {
		return false, err
	}
	defer r.pulledImages().Close()
	settings, err := r.settings()
	if err != nil {
		return false, err
	}
	ask, err := r.read()
	if err != nil {
		return false, err
	}
	return r.move(ctx, ask, settings, r.Reboot || r.rebootNeeded())
}

// read returns what is asked for.
func (r *Rebase) read() (pivot.Ask, error) {
	r.Progress.Begin(pivot.StepRead, "reading what is asked for")
	return r.ask()
}

// move brings the machine to what an administrator asks for, and reboots if reboot is set. If
// the fleet has a lock, a move with a reboot or a trial takes a slot first. move reports whether
// anything had to change.
func (m *Machine) move(ctx context.Context, ask pivot.Ask, settings host.Settings, reboot bool) (changed bool, err error) {
	if settings.FleetLock.URL == "" || !reboot && m.Try == nil {
		return m.moveNow(ctx, ask, settings, reboot)
	}
	return m.withSlot(ctx, settings.FleetLock, ask, func(ask pivot.Ask) (bool, error) { return m.moveNow(ctx, ask, settings, reboot) })
}

func (m *Machine) moveNow(ctx context.Context, ask pivot.Ask, settings host.Settings, reboot bool) (changed bool, err error) {
	if m.Try != nil {
		if err := m.requireClosedFirstBoot("try a new system"); err != nil {
			return false, err
		}
		if err := m.conductor().Try(ctx, &ask, *m.Try, settings.RebootMethod); err != nil {
			return false, err
		}
	}
	out, err := m.converger().Converge(ctx, ask)
	switch {
	case err != nil:
		return false, err
	case out.Action == pivot.ActionClose:
		m.Progress.Note("nothing to do: the machine is what was asked for")
		m.dropUsedDownload(ctx, out.Target.Image, false)
		return false, nil
	case out.Action == pivot.ActionReboot:
		m.Progress.Note("nothing to do but to reboot: the next boot is what was asked for")
	}
	m.runResult().committed(out.Action != pivot.ActionReboot)
	m.dropUsedDownload(ctx, out.Target.Image, true)
	if m.Try != nil {
		return true, m.conductor().Enter(ctx, settings.RebootMethod)
	}
	if !reboot {
		m.Progress.Note("the new system is committed; until the reboot leave /etc and rpm-ostree alone: changes made to /etc stay behind, " +
			"and what is staged on top (rpm-ostree kargs, install) becomes the next boot with the /etc that runs, without the CPU pinning files")
		return true, nil
	}
	return true, m.reboot(ctx, settings.RebootMethod)
}

// Plan returns what a pivot by hand would change. It writes nothing.
func (r *Rebase) Plan(ctx context.Context) (pivot.Plan, error) {
	if err := r.open(); err != nil {
		return pivot.Plan{}, err
	}
	defer r.pulledImages().Close()
	ask, err := r.ask()
	if err != nil {
		return pivot.Plan{}, err
	}
	plan, err := r.converger().Plan(ctx, ask)
	return plan.WithDrain(disruption.Rules{}, nil), err // what changes needs a reboot
}

// ask returns what the command line and the old tool's files ask of the machine. With
// FromDownloaded the image defaults to the downloaded one.
func (r *Rebase) ask() (pivot.Ask, error) {
	if err := r.takeDownloaded(); err != nil {
		return pivot.Ask{}, err
	}
	if r.FromDownloaded && r.Image == "" {
		r.Image = r.Progress.Record.Downloaded.Image.Reference
	}
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
	packages, err := r.packages()
	if err != nil {
		return pivot.Ask{}, err
	}
	image, err := image(reference)
	return pivot.Ask{Image: image, ImageKargs: choice, Kargs: change, Entries: files, Packages: packages, ByHand: true}, err
}

// packages returns what is asked of packages. Asking for the default kernel replaces any other
// kernel type.
func (r *Rebase) packages() (pivot.Packages, error) {
	err := errors.Join(spec.CheckKernelType(r.KernelType, runtime.GOARCH), spec.CheckTogether(r.KernelType, r.Extensions))
	for _, name := range r.Extensions {
		err = errors.Join(err, spec.CheckExtension(name))
	}
	if err != nil {
		return pivot.Packages{}, fault.New(fault.Usage, "cannot ask for packages: %w", err)
	}
	asked := mcfile.Desired{KernelType: r.KernelType, Extensions: r.Extensions, ExtensionsImage: r.ExtensionsImage}
	var before []*mcfile.Desired
	if r.KernelType == extensions.KernelDefault {
		for _, kind := range extensions.KernelTypes() {
			before = append(before, &mcfile.Desired{KernelType: kind})
		}
	}
	return packages(&asked, before...)
}

// pinningFiles returns the files of the requested CPU partitioning. It returns an error if the
// machine lacks one of the CPUs.
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
