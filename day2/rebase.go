package day2

import (
	"context"
	"os"
	"runtime"

	"machine-pivot/internal/disruption"
	"machine-pivot/internal/fault"
	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/machine"
	"machine-pivot/internal/machineconfig"
	"machine-pivot/internal/osimage/imageref"
	"machine-pivot/internal/pinning"
	"machine-pivot/kargs"
	"machine-pivot/pivot"
)

// Rebase is an administrator's change of image, kernel arguments, packages or CPU partitioning,
// without a MachineConfig.
type Rebase struct {
	*machine.Machine
	Image   string // "": the one in imageref.PullspecPath, or else the booted one
	Upgrade bool   // the image is what the tag that the machine follows points to now; nothing else is asked for
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
	if r.Upgrade || r.Image != "" || r.KernelType != "" || len(r.Append)+len(r.Delete)+len(r.Pinning)+len(r.Extensions) > 0 {
		return true
	}
	for _, path := range []string{imageref.PullspecPath, kargs.LegacyPath} {
		if _, err := os.Stat(r.Host.Path(path)); err == nil {
			return true
		}
	}
	return false
}

// Run makes the requested system the next boot, and reboots if that is asked for. It reports
// whether anything had to change.
func (r *Rebase) Run(ctx context.Context, options RunOptions) (changed bool, err error) {
	changed, err = r.attempt(ctx, options)
	return changed, end(ctx, r.Machine, err)
}

func (r *Rebase) attempt(ctx context.Context, options RunOptions) (bool, error) {
	if err := options.open(ctx, r.Machine); err != nil {
		return false, err
	}
	defer r.Pulled().Close()
	r.Progress.Begin(pivot.StepRead, "reading what is asked for")
	m, err := newMove(r.Machine, options, r.Reboot || r.rebootNeeded())
	if err != nil {
		return false, err
	}
	m.follows = true
	req, err := r.req(ctx, options)
	if err != nil {
		return false, err
	}
	plan, err := m.plan(ctx, req)
	if err != nil {
		return false, err
	}
	return m.carryOut(ctx, plan, m.converger.Decide(plan))
}

// Plan returns what Run would change. It writes nothing.
func (r *Rebase) Plan(ctx context.Context, options RunOptions) (pivot.Plan, error) {
	if err := r.Open(); err != nil {
		return pivot.Plan{}, err
	}
	plan, err := preview(ctx, r.Machine, options, func() (pivot.Request, error) { return r.req(ctx, options) })
	return plan.WithDrain(disruption.Rules{}, nil), err // what changes needs a reboot
}

// Download does the part of Run that changes neither the running system nor the next boot. It checks what is asked for,
// pulls the image, and keeps it for a run with RunOptions.Downloaded.
func (r *Rebase) Download(ctx context.Context) (Downloaded, error) {
	return runDownload(ctx, r.Machine, func() (p Downloaded, err error) {
		r.Progress.Begin(pivot.StepRead, "reading what is asked for")
		req, err := r.req(ctx, RunOptions{})
		if err != nil {
			return p, err
		}
		return download(ctx, r.Machine, req, Download{}, nil)
	})
}

// ask returns what the command line and the old tool's files ask of the machine. The image of a
// download is the default for one that is not named.
func (r *Rebase) req(ctx context.Context, options RunOptions) (pivot.Request, error) {
	change, err := r.kargs()
	if err != nil {
		return pivot.Request{}, err
	}
	files, err := r.pinningFiles()
	if err != nil {
		return pivot.Request{}, err
	}
	image, err := r.reference(ctx, options)
	if err != nil {
		return pivot.Request{}, err
	}
	choice, err := r.ImageKargsChoice()
	if err != nil {
		return pivot.Request{}, err
	}
	packages, err := r.packages()
	if err != nil {
		return pivot.Request{}, err
	}
	req := pivot.Request{ImageKargs: choice, Kargs: change, Entries: files, Packages: packages, ByHand: true}
	if req.Image = pivot.ImageOf(image); !req.Image.IsZero() {
		req.OwnEntries, err = r.equalDefaults()
	}
	return req, err
}

// packages returns what is asked of packages. Asking for the default kernel replaces any other
// kernel type.
func (r *Rebase) packages() (pivot.Packages, error) {
	if err := machineconfig.CheckPackages(r.KernelType, r.Extensions, runtime.GOARCH); err != nil {
		return pivot.Packages{}, fault.New(fault.Usage, "cannot ask for packages: %w", err)
	}
	source, err := parseImage(r.ExtensionsImage)
	if err != nil {
		return pivot.Packages{}, err
	}
	asked := machineconfig.MachineConfig{Spec: machineconfig.Spec{KernelType: r.KernelType, Extensions: r.Extensions, ExtensionsImage: source}}
	var before []*machineconfig.MachineConfig
	if r.KernelType == machineconfig.KernelDefault {
		for _, kind := range machineconfig.KernelTypes() {
			before = append(before, &machineconfig.MachineConfig{Spec: machineconfig.Spec{KernelType: kind}})
		}
	}
	return machine.Packages(&asked, before...), nil
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
				workload, set, lacking, cpus).WithHint("give --cpuset only CPUs that lscpu lists")
		}
	}
	return []hostfiles.File{
		hostfiles.NewFile(pinning.DropInPath, 0o644, pinning.DropIn(r.Pinning)),
		hostfiles.NewFile(pinning.KubeletPath, 0o644, pinning.KubeletFile(r.Pinning)),
	}, nil
}
