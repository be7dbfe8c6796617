package firstboot

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/ostree"
	"machine-pivot/internal/pinning"
	"machine-pivot/internal/projection"
	"machine-pivot/kargs"
	"machine-pivot/pivot"
	"machine-pivot/rpmostree"
)

// Rollback is an administrator's rollback to the previous deployment, in a separate
// transaction.
type Rollback struct {
	Machine
	Reboot bool
}

// Run makes the previous deployment, with its kernel arguments and its /etc, the next boot. If
// a deployment other than the running one is the next boot already, Run makes the running one
// the next boot instead.
func (r *Rollback) Run(ctx context.Context) error {
	err := r.explainStop(ctx, r.attempt(ctx))
	r.Progress.End(err)
	return err
}

func (r *Rollback) attempt(ctx context.Context) error {
	if err := r.openToChange(ctx); err != nil {
		return err
	}
	r.Progress.Begin(pivot.StepObserve, "looking for the previous deployment")
	state, err := r.Host.Observe(ctx, pivot.Target{Entries: []hostfiles.Entry{{Path: pinning.DropInPath}, {Path: pinning.KubeletPath}}})
	if err != nil {
		return err
	}
	settings, err := r.settings()
	if err != nil {
		return err
	}
	previous, err := r.previous(state)
	if err != nil {
		return err
	}
	target, to, err := r.target(state, previous)
	if err != nil {
		return err
	}
	t := pivot.Transaction{ByHand: true, NextBoot: r.converger().NextBoot, Progress: r.Progress, Engine: &rpmostree.Rollback{
		Sysroot: r.Host.Sysroot(), Run: r.Host.Run, To: previous.DeploymentRef,
	}}
	if !state.Pending() {
		t.BeforeCommit = func(context.Context) error {
			return closeFirstBootIn(r.Host.Sysroot().Physical(), r.Host.Disk, previous.Path)
		}
	}
	if err := t.Return(ctx, state, target, to); err != nil {
		return err
	}
	if r.runResult().endChanged(OutcomeCommitted); !state.Pending() { // otherwise the running system only stays
		r.runResult().committed(true)
	}
	switch {
	case state.Pending():
		return r.Progress.Enter(pivot.PhaseDone, state.BootID)
	case r.Reboot:
		return r.reboot(ctx, settings.RebootMethod)
	}
	r.Progress.Note("the previous deployment is the next boot, with its own /etc")
	return nil
}

// previous returns the deployment to roll back to.
func (r *Rollback) previous(state pivot.State) (ostree.Deployment, error) {
	all, err := r.Host.Sysroot().Deployments()
	if err != nil {
		return ostree.Deployment{}, err
	}
	for _, d := range all {
		booted := d.Checksum.String() == state.Booted.Commit && d.Serial == state.Booted.Serial
		if d.Stateroot == state.Booted.Stateroot && booted == state.Pending() {
			return d, nil
		}
	}
	return ostree.Deployment{}, fault.New(fault.Refused, "cannot roll back: there is no deployment but the running one")
}

// target returns the machine's target after the rollback, which the next boot is verified
// against, and the deployment.
func (r *Rollback) target(state pivot.State, previous ostree.Deployment) (pivot.Target, pivot.Deployment, error) {
	to, err := r.Host.Deployment(previous)
	if err != nil {
		return pivot.Target{}, to, err
	}
	files, err := hostfiles.ReadEntries(previous.Path, pinningPaths())
	if err != nil {
		return pivot.Target{}, to, err
	}
	target := pivot.Target{Image: to.Image, Kargs: kargs.Change{
		New: onlyIn(to.Options, state.Booted.Options), Delete: onlyIn(state.Booted.Options, to.Options),
	}}
	target.Image.Commit = to.Commit
	for _, path := range pinningPaths() {
		if f, ok := files[path]; ok {
			target.Entries = append(target.Entries, f)
		}
	}
	if mc, err := machineConfigOf(previous.Path); err == nil && mc != nil { // otherwise it has no name
		target.MachineConfig, r.runResult().MachineConfig = *mc, mc
	}
	carried, err := projection.Read(previous.Path) // projected when it boots
	target.Entries = append(target.Entries, carried.Entries...)
	return target, to, err
}

// onlyIn returns the arguments that line has and other lacks, except those that belong to the
// deployment: no configuration may set them.
func onlyIn(line, other kargs.Line) kargs.Line {
	var rest kargs.Line
	for _, arg := range line {
		if !slices.Contains(other, arg) && !kargs.Check(arg).Failed() {
			rest = append(rest, arg)
		}
	}
	return rest
}

func pinningPaths() []string { return []string{pinning.DropInPath, pinning.KubeletPath} }

// closeFirstBootIn closes the first boot in a deployment that is not running. Otherwise that
// deployment would pivot forward again once it is booted. The next boot does not change.
func closeFirstBootIn(sysroot string, disk hostfiles.Disk, deployment string) error {
	file := filepath.Join(deployment, EncapsulatedPath)
	if _, err := os.Lstat(file); os.IsNotExist(err) {
		return nil
	}
	dir, err := hostfiles.OpenWritable(sysroot, filepath.Dir(file))
	if err != nil {
		return err
	}
	defer dir.Close()
	file = filepath.Join(fmt.Sprintf("/proc/self/fd/%d", dir.Fd()), filepath.Base(file))
	if err := hostfiles.Rename(disk, file, file+closedSuffix); err != nil {
		return fault.New(fault.CannotWrite, "cannot close the first boot of the previous deployment: %w", err)
	}
	return nil
}
