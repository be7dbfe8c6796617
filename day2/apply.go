// Package day2 makes all changes of a machine after its first boot: another MachineConfig, image or kernel arguments, a
// repair, a rollback, a trial. It also does what comes before them: downloads, windows, the fleet's lock.
package day2

import (
	"context"
	"errors"
	"slices"

	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/machine"
	"machine-pivot/internal/machineconfig"
	"machine-pivot/pivot"
)

// Apply moves a machine from its current MachineConfig to another one, in one transaction with one reboot. If no change
// needs a reboot, it changes the running system (live.go).
//
// The current MachineConfig is recorded in the deployment's own /etc (machineconfig.RecordPath) and committed with
// everything else. So a rollback to an older deployment also returns to the MachineConfig of that deployment.
type Apply struct {
	*machine.Machine
	Config Config // nothing: the downloaded one
	When   When   // "": RebootLater
	// Unsupported selects what to do about changes that only an installation can make.
	Unsupported machineconfig.Unsupported
	// Repair only repairs drift. It applies the machine's current MachineConfig and ignores
	// Config (repair.go).
	Repair bool
}

// When says when a machine reboots for another MachineConfig.
type When string

// The choices. Except with RebootNow, the running system is changed if no change needs a reboot.
const (
	RebootNever    When = "never"     // refuse changes that need a reboot
	RebootLater    When = "later"     // commit changes that need a reboot, but do not reboot
	RebootIfNeeded When = "if-needed" // reboot at once if a change needs it
	RebootNow      When = "now"       // commit all changes, whatever the rules say, and reboot
)

// Run makes the MachineConfig's system the next boot, and reboots if When asks for that; or
// it changes the running system. It reports whether anything had to change.
func (a *Apply) Run(ctx context.Context, options RunOptions) (changed bool, err error) {
	changed, err = a.attempt(ctx, options)
	return changed, end(ctx, a.Machine, err)
}

func (a *Apply) attempt(ctx context.Context, options RunOptions) (bool, error) {
	if err := options.open(ctx, a.Machine); err != nil {
		return false, err
	}
	defer a.Pulled().Close()
	m, err := newMove(a.Machine, options, a.When == RebootNow || a.When == RebootIfNeeded)
	if err != nil {
		return false, err
	}
	asked, err := a.request(options)
	if err != nil {
		return false, err
	}
	plan, err := m.plan(ctx, asked.Request)
	if err == nil {
		plan, err = a.judged(plan, asked)
	}
	if err != nil {
		return false, err
	}
	a.Report().Drain = *plan.Drain
	decision := m.converger.Decide(plan)
	if a.Repair {
		if err := a.beforeRepair(ctx, m.converger, plan, decision, asked); err != nil {
			return false, err
		}
	}
	switch decision.Action {
	case pivot.ActionClose:
		return false, a.nothingToDo(ctx, options, plan, asked)
	case pivot.ActionLive:
		return true, a.applyLive(ctx, options, m.converger, plan, asked)
	case pivot.ActionApply, pivot.ActionWait:
		for _, reason := range plan.RebootReasons() {
			a.Progress.Note("a reboot is needed: " + reason)
		}
	}
	return m.carryOut(ctx, plan, decision)
}

// Plan returns what Run would change. It writes nothing.
func (a *Apply) Plan(ctx context.Context, options RunOptions) (plan pivot.Plan, err error) {
	if err := a.Open(); err != nil {
		return plan, err
	}
	var asked request
	plan, err = preview(ctx, a.Machine, options, func() (pivot.Request, error) {
		asked, err = a.request(options)
		return asked.Request, err
	})
	if err == nil {
		plan, err = a.judged(plan, asked)
	}
	plan.Notes = append(plan.Notes, asked.notes...)
	if err == nil && LiveInterrupted(a.Host.Root) {
		plan.Notes = append(plan.Notes, "a change of the running system was interrupted, and is finished first")
	}
	return plan, err
}

// Download does the part of Run that changes neither the running system nor the next boot. It checks the MachineConfig
// against the machine, pulls the image, and keeps both for a run with RunOptions.Downloaded. A repair only checks, and
// keeps what was downloaded for another run.
func (a *Apply) Download(ctx context.Context) (Downloaded, error) {
	return runDownload(ctx, a.Machine, func() (p Downloaded, err error) {
		if a.Repair {
			p.Plan, err = a.Plan(ctx, RunOptions{})
			return p, err
		}
		asked, err := a.request(RunOptions{})
		if err != nil {
			return p, err
		}
		p, err = download(ctx, a.Machine, asked.Request, Download{File: a.Config.File, MachineConfig: asked.digest}, a.Config.Data)
		if err == nil {
			p.Plan, err = a.judged(p.Plan, asked)
		}
		return p, err
	})
}

// nothingToDo ends a run on a machine that is what the MachineConfig asks for.
func (a *Apply) nothingToDo(ctx context.Context, options RunOptions, plan pivot.Plan, asked request) error {
	if a.Repair {
		return nil
	}
	a.Progress.Note("nothing to do: the machine is what the MachineConfig asks for")
	a.WarnAboutNextBoot(plan)
	if err := a.CarryInRunningSystem(asked.Entries); err != nil {
		return err
	}
	if err := a.recordOnly(plan, asked); err != nil {
		return err
	}
	dropUsedDownload(ctx, a.Machine, plan.To().Image, options.Downloaded, false)
	return nil
}

// recordOnly writes the records of a MachineConfig that the machine already matches. It also
// sets the journal's target, which later comparisons use, unless another system waits for its
// reboot.
func (a *Apply) recordOnly(plan pivot.Plan, asked request) error {
	if err := errors.Join(saveRecord(a.Machine, asked.record), saveRecord(a.Machine, asked.leftOut)); err != nil || plan.From().Pending() {
		return err
	}
	return recordTarget(a.Machine, asked.reached(plan))
}

// reached returns the target that a machine has reached by a plan without a reboot: the plan's,
// without the removals of links that units still need. For a repair it is the last target.
func (r request) reached(plan pivot.Plan) pivot.Target {
	if r.last != nil {
		return *r.last
	}
	target, units := plan.To(), plan.From().Etc.Units.By
	target.Entries = slices.Clone(target.Entries)
	target.Entries = slices.DeleteFunc(target.Entries, func(e hostfiles.Entry) bool {
		return e.Kind == hostfiles.KindDefault && units[e.Path] != ""
	})
	return target
}
