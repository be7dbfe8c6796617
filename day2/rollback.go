package day2

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/machine"
	"machine-pivot/internal/machineconfig"
	"machine-pivot/internal/ostree"
	"machine-pivot/internal/projection"
	"machine-pivot/internal/settings"
	"machine-pivot/kargs"
	"machine-pivot/pivot"
	"machine-pivot/rpmostree"
)

// Rollback is an administrator's rollback to the previous deployment, in a separate
// transaction.
type Rollback struct {
	*machine.Machine
	Reboot bool
}

// Run makes the previous deployment, with its kernel arguments and its /etc, the next boot. If another deployment is
// the next boot, or is entered once by the next reboot, Run gives that up, and the running one is the next boot. It
// never boots a system after a trial without a proof. Whatever it makes the next boot, it closes the first boot there.
func (r *Rollback) Run(ctx context.Context) error { return end(ctx, r.Machine, r.attempt(ctx)) }

// Preview returns the deployment that Run would make the next boot, and whether it is the running one. It writes nothing.
func (r *Rollback) Preview(ctx context.Context) (to pivot.Deployment, stays bool, err error) {
	to, stays, previous, err := r.Leads()
	if err == nil {
		err = r.boots().CheckTo(ctx, previous.DeploymentRef)
	}
	return to, stays, err
}

// Leads is Preview without a look at whether a program of this host can do it.
func (r *Rollback) Leads() (to pivot.Deployment, stays bool, previous ostree.Deployment, err error) {
	if err = r.Open(); err == nil {
		_, err = r.Joined().Demand(nil)
	}
	if err == nil {
		_, stays, previous, err = r.find()
	}
	if err == nil {
		to, err = r.Host.Deployment(previous)
	}
	return to, stays, previous, err
}

// find finds the deployment to roll back to, which is the running one if that stays.
func (r *Rollback) find() (state pivot.State, stays bool, previous ostree.Deployment, err error) {
	if state, err = r.Host.Systems(); err != nil {
		return state, false, previous, err
	}
	stays = state.Pending() || r.Progress.Content.Held() // of Run, OpenToChange has given up what waited
	previous, err = r.previous(state, stays)
	return state, stays, previous, err
}

func (r *Rollback) boots() rpmostree.Default {
	return rpmostree.Default{Sysroot: r.Host.Sysroot(), Run: r.Host.Run, Note: r.Progress.Note}
}

func (r *Rollback) attempt(ctx context.Context) error {
	if err := r.OpenToChange(ctx); err != nil {
		return err
	}
	r.Progress.Begin(pivot.StepObserve, "looking for the previous deployment")
	state, stays, previous, err := r.find()
	if err != nil {
		return err
	}
	target, to, err := r.target(state, previous)
	if err != nil {
		return err
	}
	boots := r.boots()
	r.Progress.Begin(pivot.StepPrepare, "checking that deployment "+to.ID()+" can be the next boot")
	if err := boots.CheckTo(ctx, previous.DeploymentRef); err != nil {
		return err
	}
	note, err := r.NoteFIPS(to.Options)
	if err != nil {
		return err
	}
	if note != "" {
		r.Progress.Note(note)
	}
	var ways machine.Ways
	if r.Reboot && !stays {
		ways = r.FindWays(ctx, r.rebootMethod(), machine.NextSystem{
			Kargs: state.NeedsKernel(target, to.Options),
			Kexec: func() error { return r.Host.CheckKexec(previous.Entry) },
		})
		if text := ways.Text(); text != "" {
			r.Progress.Note(text)
		}
	}
	t := pivot.Transaction{
		ByHand: true, NextBoot: r.Converger(nil).NextBoot, Progress: r.Progress, Forget: r.Host.ForgetPrepared,
		BeforeCommit: func(context.Context) error { return r.closeFirstBootIn(previous) },
	}
	err = t.Return(ctx, state, target, to, func(ctx context.Context) error { return boots.Make(ctx, previous.DeploymentRef) })
	if err != nil {
		return err
	}
	if stays {
		r.Progress.Note("the running system stays: it is the next boot again")
		r.Report().EndChanged(machine.OutcomeCommitted)
		return r.Progress.Enter(pivot.PhaseDone, state.BootID)
	}
	r.Report().Committed(true)
	if r.Reboot {
		return r.EnterNext(ctx, ways)
	}
	r.Progress.Note("the previous deployment is the next boot, with its own /etc")
	return nil
}

// rebootMethod returns the chosen method. Settings that cannot be read do not stop a rollback, which may be why it is
// wanted. It then reboots by the way that is always possible, unless the command line says how.
func (r *Rollback) rebootMethod() settings.RebootMethod {
	chosen, err := r.Settings()
	if err == nil {
		return chosen.RebootMethod
	}
	method := cmp.Or(r.RebootMethod, settings.RebootFirmware)
	r.Progress.Note(fmt.Sprintf("warning: the reboot is made with reboot-method=%s: %s", method, fault.WithRemedy(err)))
	return method
}

// previous returns the deployment to roll back to: the running one if that stays.
func (r *Rollback) previous(state pivot.State, stays bool) (ostree.Deployment, error) {
	all, err := r.Host.Sysroot().Deployments()
	if err != nil {
		return ostree.Deployment{}, err
	}
	var others []string // in other stateroots, with a /var and an /etc of their own
	unproven := ""
	for _, d := range all {
		switch booted := d.ID() == state.Booted.ID(); {
		case d.Stateroot != state.Booted.Stateroot:
			others = append(others, d.ID())
		case booted != stays:
		case r.Progress.Content.Avoids(d.ID()):
			unproven = d.ID()
		default:
			return d, nil
		}
	}
	if unproven != "" {
		return ostree.Deployment{}, fault.New(fault.Refused, "cannot roll back: deployment %s was never proven, and there is no other but the running one", unproven).
			WithHint("the running system stays the next boot; the boot menu still starts the other one, and the same pivot command tries it again")
	}
	none := fault.New(fault.Refused, "cannot roll back: there is no deployment but the running one").
		WithHint("pivot rebase --image IMAGE makes another one")
	if len(others) > 0 {
		none = fault.New(fault.Refused, "cannot roll back: there is no deployment but the running one in stateroot %s", state.Booted.Stateroot).
			WithHint("another stateroot is another installation, with its own /var: to start it, choose it in the boot menu: %s", strings.Join(others, ", "))
	}
	return ostree.Deployment{}, none
}

// target returns the target for the boot after a rollback, and the deployment that boots. The target has its image,
// MachineConfig, CPU partitioning and entries for /var, and the kernel arguments that differ from the running ones.
func (r *Rollback) target(state pivot.State, previous ostree.Deployment) (target pivot.Target, to pivot.Deployment, err error) {
	if to, err = r.Host.Deployment(previous); err != nil {
		return target, to, err
	}
	target.Image, target.Image.Commit = to.Image, to.Commit
	target.Kargs = kargs.Between(state.Booted.Options, to.Options)
	err = errors.Join(addKept(&target, previous), r.addRecorded(&target, to, previous))
	if err != nil { // it says what is verified: the rollback does not need it
		r.Progress.Note(fmt.Sprintf("warning: after the reboot, pivot verify does not compare everything with the previous deployment: %v", err))
	}
	if mc, err := machine.MachineConfigOf(previous.Path); err == nil && mc != nil { // otherwise it has no name
		target.MachineConfig, r.Report().MachineConfig = *mc, mc
	}
	return target, to, nil
}

// addKept adds what a deployment's commit gave it besides the entries of its MachineConfig: what is projected when it
// boots, CPU partitioning, and the record. What cannot be read is left out.
func addKept(target *pivot.Target, d ostree.Deployment) error {
	carried, err := projection.Read(d.Path)
	if err != nil {
		carried = projection.Set{}
	}
	partitioning, perr := machine.PartitioningIn(d.Path)
	records, rerr := hostfiles.ReadEntries(d.Path, []string{machineconfig.RecordPath, machineconfig.LeftOutPath})
	kept := slices.Concat(carried.Entries, partitioning)
	for _, path := range slices.Sorted(maps.Keys(records)) {
		kept = append(kept, records[path])
	}
	*target = target.With(kept)
	return errors.Join(err, perr, rerr)
}

// addRecorded adds to a target what the MachineConfig asks for that a deployment records. A kernel
// argument that the deployment lacks was deleted by hand, and is not expected.
func (r *Rollback) addRecorded(target *pivot.Target, to pivot.Deployment, d ostree.Deployment) error {
	desired, err := r.recordedIn(d)
	if err != nil || desired == nil {
		return err
	}
	entries, err := machine.EntriesIn(desired, func(path string) (hostfiles.File, bool, error) { return hostfiles.Read(d.Path, path) })
	if err != nil {
		return err
	}
	// What is outside of /etc is among what the deployment carries.
	*target = target.With(slices.DeleteFunc(hostfiles.Entries(entries), func(e hostfiles.Entry) bool { return projection.Outside(e.Path) }))
	target.Units = desired.Units
	recorded, err := r.Arguments(desired.KernelArguments)
	if err != nil {
		return err
	}
	change := target.Kargs
	change.New = slices.Clone(target.Kargs.New) // has whole groups, in their order
	for _, arg := range recorded {
		if !slices.Contains(target.Kargs.New, arg) {
			change.New = append(change.New, arg)
		}
	}
	if result, err := change.Apply(to.Options); err == nil && !result.Changed {
		target.Kargs = change
	}
	return nil
}

// recordedIn returns the MachineConfig that a deployment was made for; nil if it has none of its
// own. That of a first boot counts only where the first boot was completed: other deployments have
// a copy of the file.
func (r *Rollback) recordedIn(d ostree.Deployment) (*machineconfig.MachineConfig, error) {
	path, data, err := readCurrent(d.Path)
	closed, cerr := machine.ClosingIn(r.Progress.Content)
	err = cmp.Or(err, cerr)
	if err != nil || path != machineconfig.RecordPath && (path != machineconfig.ClosedPath || closed == nil || closed.Deployment != d.ID()) {
		return nil, err
	}
	facts, err := r.Facts()
	if err != nil {
		return nil, err
	}
	return parseCurrent(path, data, facts)
}

// closeFirstBootIn closes the first boot in a deployment that is to be the next boot. Otherwise that
// deployment would pivot forward again once it is booted. The next boot does not change.
func (r *Rollback) closeFirstBootIn(d ostree.Deployment) error {
	if open, err := machine.OpenFirstBoot(d.Path); err != nil || open == "" {
		return err
	}
	dir, err := hostfiles.OpenWritable(r.Host.Sysroot().Physical(), filepath.Join(d.Path, "etc"))
	if err != nil {
		return err
	}
	defer dir.Close()
	if err := machine.CloseFirstBoot(r.Host.Disk, fmt.Sprintf("/proc/self/fd/%d", dir.Fd())); err != nil {
		return fmt.Errorf("cannot prepare deployment %s: %w", d.ID(), err)
	}
	return nil
}
