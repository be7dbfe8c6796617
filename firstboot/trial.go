package firstboot

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/ostree"
	"machine-pivot/internal/retry"
	"machine-pivot/pivot"
)

// Trial conducts the trial of the system that runs, or closes one that is over: the
// program of pivot-trial.service.
type Trial struct {
	Machine
	// Sleep waits between two looks; nil: retry.Sleep.
	Sleep func(ctx context.Context, d time.Duration) error

	said string // last of what the system lacks
}

// look is how often a system on trial is looked at.
const look = 5 * time.Second

// Run returns when there is nothing on trial any more: the system is confirmed, or an
// earlier trial is closed. It ends with a reboot into the old system if the trial fails.
func (t *Trial) Run(ctx context.Context) error {
	err := t.conduct(ctx)
	if err != nil && ctx.Err() != nil {
		t.Progress.Note("stopped: the old system stays the default, and pivot confirm can still keep this one")
		return nil
	}
	switch {
	case err == nil:
	case t.Progress.Record.Phase == pivot.PhaseFailed:
		t.Progress.Note(err.Error()) // why the trial has failed stays in the journal
	default:
		t.Progress.Fail(err)
	}
	return err
}

func (t *Trial) conduct(ctx context.Context) error {
	runs, err := t.alone(ctx, t.begin)
	for runs && err == nil {
		lacks := t.lacks(ctx)
		if err := ctx.Err(); err != nil {
			return err
		}
		runs, err = t.alone(ctx, func(ctx context.Context) (bool, error) { return t.decide(ctx, lacks) })
		if runs && err == nil {
			err = t.wait(ctx)
		}
	}
	return err
}

// say tells what the system lacks, whenever that changes.
func (t *Trial) say(lacks []string) {
	text := "the system has proven itself"
	if len(lacks) > 0 {
		text = strings.Join(lacks, "; ")
	}
	if text != t.said {
		t.said = text
		t.Progress.Note("on trial: " + text)
	}
}

func (t *Trial) wait(ctx context.Context) error {
	if t.Sleep != nil {
		return t.Sleep(ctx, look)
	}
	return retry.Sleep(ctx, look)
}

// alone does a step while no other pivot is at work, such as one that confirms.
func (t *Trial) alone(ctx context.Context, step func(context.Context) (bool, error)) (runs bool, err error) {
	err = t.locked(ctx, t.wait, func() (err error) {
		runs, err = step(ctx)
		return err
	})
	return runs, err
}

// locked runs what changes the machine as soon as no other pivot does.
func (m *Machine) locked(ctx context.Context, sleep func(context.Context) error, run func() error) error {
	for {
		unlock, err := m.Host.Lock()
		if err == nil {
			defer func() { _ = unlock() }() // also if run panics
			return run()
		}
		if fault.KindOf(err).Transient() {
			err = sleep(ctx)
		}
		if err != nil {
			return err
		}
	}
}

// begin is the first look at the trial, in whichever system runs.
func (t *Trial) begin(ctx context.Context) (runs bool, err error) {
	state, err := t.openTrial(ctx)
	if err != nil {
		return false, err
	}
	switch state {
	case pivot.TrialNone:
		return false, t.Progress.Journal.Save(t.Progress.Record) // without its stamp
	case pivot.TrialWaits:
		t.Progress.Note("the system on trial waits for the reboot into it")
		return false, nil
	case pivot.TrialOver:
		return false, t.closeTrial(ctx)
	case pivot.TrialRuns:
		if t.Progress.Record.Phase == pivot.PhaseTrial && t.Progress.Record.BootID == t.Progress.BootID {
			return true, nil // begun already: this program was started again
		}
		return true, t.open(ctx)
	}
	return false, t.end(ctx, state)
}

// end ends a trial that is decided, in the system on trial.
func (t *Trial) end(ctx context.Context, state pivot.TrialState) error {
	switch state {
	case pivot.TrialKept:
		return t.keepTried(ctx)
	case pivot.TrialLost:
		return t.goBack(ctx)
	}
	return nil // somebody has confirmed it
}

// decide goes on with a trial, given what the system lacks. It reports whether that goes on.
func (t *Trial) decide(ctx context.Context, lacks []string) (runs bool, err error) {
	state, err := t.openTrial(ctx)
	if err != nil {
		return false, err
	}
	if state != pivot.TrialRuns {
		return false, t.end(ctx, state)
	}
	t.say(lacks)
	since, err := t.Host.Uptime()
	if err != nil {
		return false, err
	}
	switch trial := t.Progress.Record.Trial; {
	case since >= trial.Limit():
		return false, t.fail(ctx, lacks)
	case len(lacks) == 0 && trial.Confirm == pivot.ConfirmAuto:
		return false, t.confirm(ctx)
	}
	return true, nil
}

// open begins the trial of the system that runs. The old one is the default from here on
// at the latest.
func (t *Trial) open(ctx context.Context) error {
	trial := t.Progress.Record.Trial
	t.Progress.Begin(pivot.StepProve, fmt.Sprintf("on trial until %v after the start of the kernel; pivot confirm keeps this system, a reboot goes back", trial.Limit()))
	if err := t.makeDefault(ctx, trial.Old); err != nil {
		return err
	}
	return t.Progress.Enter(pivot.PhaseTrial, t.Progress.BootID)
}

// fail ends the trial of the system that runs. The journal first: whatever comes then
// finds the old system the default.
func (t *Trial) fail(ctx context.Context, lacks []string) error {
	trial := t.Progress.Record.Trial
	why := strings.Join(lacks, "; ")
	switch {
	case why != "":
	case trial.Confirm == pivot.ConfirmAuto:
		why = "it has proven itself too late"
	default:
		why = "nobody has confirmed it"
	}
	err := fault.New(fault.Refused, "the new system has failed its trial of %v: %s", trial.Limit(), why).WithHint(trialHint)
	t.Progress.Record.Error = pivot.FailureOf(err)
	t.Progress.Note(err.Error())
	if err := t.Progress.Enter(pivot.PhaseFailed, t.Progress.BootID); err != nil {
		return err
	}
	return t.goBack(ctx)
}

const trialHint = "see the journal of its boot (journalctl -b -1); the same again tries it again"

// goBack boots the old system, past nothing: by the firmware, for it is this kernel that is
// not trusted.
func (t *Trial) goBack(ctx context.Context) error {
	old := t.Progress.Record.Trial.Old
	if err := t.unstage(ctx); err != nil {
		return err
	}
	if err := t.makeDefault(ctx, old); err != nil {
		return err
	}
	return t.rebootBy(ctx, "the old system, deployment "+old, "reboot by hand to go back to it", t.Host.Reboot)
}

// unstage removes what somebody has staged meanwhile, which would be the next boot.
func (t *Trial) unstage(ctx context.Context) error {
	staged, err := t.Host.Sysroot().Staged()
	if err != nil || staged == nil {
		return err
	}
	t.Progress.Note(fmt.Sprintf("deployment %s, which somebody has staged on the system on trial, is removed", staged.Target.ID()))
	_, err = t.Host.Run(ctx, "ostree", "admin", "undeploy", "0")
	return err
}

// openTrial reads the journal and says where the trial is, seen from the system that runs.
func (m *Machine) openTrial(ctx context.Context) (pivot.TrialState, error) {
	if err := m.openTimed(ctx); err != nil {
		return "", err
	}
	state, _, err := m.trialState()
	return state, err
}

// trialState says where the trial of the journal is, and which deployment runs.
func (m *Machine) trialState() (state pivot.TrialState, booted string, err error) {
	if m.Progress.Record.Trial == nil {
		return pivot.TrialNone, "", nil
	}
	d, err := m.Host.Sysroot().Booted()
	if err != nil {
		return "", "", err
	}
	id, err := m.Host.BootID()
	if err != nil {
		return "", "", err
	}
	state = pivot.JudgeTrial(m.Progress.Record, d.ID(), m.Progress.Record.BootID == id)
	if trial := m.Progress.Record.Trial; trial.New == "" && state != pivot.TrialWaits && state != pivot.TrialOver {
		trial.New = d.ID()
	}
	return state, d.ID(), nil
}

// lacks names what keeps the system that runs from being confirmed. That something cannot
// be found out is among it, and that it takes longer than the trial may, but for the last
// look, which may take as long as the time between two.
func (m *Machine) lacks(ctx context.Context) []string {
	if since, err := m.Host.Uptime(); err == nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, max(m.Progress.Record.Trial.Limit()-since, look), errors.New("the trial is over"))
		defer cancel()
	}
	lacks, err := m.converger().Differences(ctx, m.Progress.Record.Target)
	if err != nil {
		lacks = append(lacks, err.Error())
	}
	if staged, err := m.Host.Sysroot().Staged(); err != nil || staged != nil {
		lacks = append(lacks, "a deployment is staged, which would be the next boot")
	}
	settings, err := m.Host.Settings()
	if err != nil {
		lacks = append(lacks, err.Error())
	}
	for _, unit := range settings.Health {
		if state, err := m.Host.UnitState(ctx, unit); err != nil || state != "active" {
			lacks = append(lacks, fmt.Sprintf("unit %s is %s", unit, orUnknown(state)))
		}
	}
	for _, check := range m.Progress.Record.Trial.Checks {
		if _, err := m.Host.Run(ctx, "/bin/sh", "-c", check); err != nil {
			lacks = append(lacks, fmt.Sprintf("check %q fails: %s", check, strings.TrimSpace(strings.TrimPrefix(err.Error(), "/bin/sh -c "+check+":"))))
		}
	}
	return lacks
}

func orUnknown(state string) string {
	if state == "" {
		return "of an unknown state"
	}
	return state
}

// confirm keeps the system that runs. The journal first: a boot into the old system then
// knows that it was wanted, and one into this one that it is.
func (m *Machine) confirm(ctx context.Context) error {
	m.Progress.Record.Trial.Confirmed = true
	if err := m.Progress.Keep(); err != nil {
		return err
	}
	return m.keepTried(ctx)
}

// keepTried makes a confirmed system the default, and ends its trial.
func (m *Machine) keepTried(ctx context.Context) error {
	if err := m.makeDefault(context.WithoutCancel(ctx), m.Progress.Record.Trial.New); err != nil {
		return err
	}
	m.Progress.Begin(pivot.StepProve, "the new system is confirmed, and the default from now on")
	m.Progress.Record.Trial, m.Progress.Record.Error = nil, nil
	return m.Progress.Enter(pivot.PhaseDone, m.Progress.BootID)
}

// closeTrial ends a trial that has failed, in another system: what it was about is
// removed, so that nobody rolls back to it and /boot has room.
func (m *Machine) closeTrial(ctx context.Context) error {
	_, booted, err := m.trialState()
	if err != nil {
		return err
	}
	record := &m.Progress.Record
	if booted == record.Trial.Old {
		if err := m.reclaim(ctx, record.Trial); err != nil {
			return err
		}
	}
	if why := pivot.WhyTrialOver(*record, booted); why != "" {
		record.Error = pivot.FailureOf(trialOver(why))
		if err := m.Progress.Enter(pivot.PhaseFailed, m.Progress.BootID); err != nil {
			return err
		}
	}
	m.removeTried(ctx, record.Trial.New, booted)
	record.Trial = nil
	m.Progress.Note(record.Error.Message)
	return m.Progress.Journal.Save(*record)
}

// replaceTrial lets another transaction take the place of a trial that waits for its
// reboot: what it has committed may not boot any more, as its trial is forgotten.
func (m *Machine) replaceTrial(ctx context.Context, trial *pivot.Trial) error {
	if _, err := m.Host.OneShot(); err == nil && trial.Entered {
		if err := m.Host.ForgetOnce(ctx); err != nil {
			return err
		}
	}
	return m.reclaim(ctx, trial)
}

// reclaim makes the old system, which runs, the default again, where it was chosen by hand
// because the one on trial was the default and did not come up.
func (m *Machine) reclaim(ctx context.Context, trial *pivot.Trial) error {
	all, err := m.Host.Sysroot().Deployments()
	if err != nil {
		return err
	}
	if first := all[0].ID(); trial.New == "" && first != trial.Old { // a crash right after the commit
		trial.New = first
	}
	if all[0].ID() != trial.New {
		return nil
	}
	return m.makeDefault(ctx, trial.Old)
}

func trialOver(why string) error {
	return fault.New(fault.Refused, "the new system has failed its trial: %s", why).WithHint(trialHint)
}

// removeTried removes the deployment of a failed trial. The machine is well also if that
// fails, so it is only noted.
func (m *Machine) removeTried(ctx context.Context, id, booted string) {
	staged, err := m.Host.Sysroot().Staged()
	if err == nil && staged != nil { // the others' numbers are different then
		err = fmt.Errorf("deployment %s is staged", staged.Target.ID())
	}
	var all []ostree.Deployment
	if err == nil {
		all, err = m.Host.Sysroot().Deployments()
	}
	for i, d := range all {
		if d.ID() == id && id != booted && i > 0 {
			_, err = m.Host.Run(ctx, "ostree", "admin", "undeploy", strconv.Itoa(i))
		}
	}
	if err != nil {
		m.Progress.Note(fmt.Sprintf("the deployment of the trial stays: %v", err))
	}
}

// withoutTrial is an error if the system that runs is on trial. One that is over is closed.
func (m *Machine) withoutTrial(ctx context.Context) error {
	state, _, err := m.trialState()
	switch {
	case err != nil:
		return err
	case state == pivot.TrialOver:
		return m.closeTrial(ctx)
	case state == pivot.TrialWaits:
		return m.replaceTrial(ctx, m.Progress.Record.Trial)
	case state == pivot.TrialRuns, state == pivot.TrialKept, state == pivot.TrialLost:
		return fault.New(fault.Refused, "cannot change this machine: the system that runs is on trial").
			WithHint("pivot confirm keeps it; a reboot goes back to the system before")
	}
	return nil
}

// Confirm keeps a system that is on trial.
type Confirm struct{ Machine }

// Run makes the system that runs the default for good, if it has proven itself.
func (c *Confirm) Run(ctx context.Context) error {
	// The trial's unit has the lock now and then.
	wait := func(ctx context.Context) error { return retry.Sleep(ctx, time.Second) }
	err := c.locked(ctx, wait, func() error { return c.attempt(ctx) })
	if err != nil {
		c.Progress.Fail(err)
	}
	return err
}

func (c *Confirm) attempt(ctx context.Context) error {
	state, err := c.openTrial(ctx)
	if err != nil {
		return err
	}
	switch state {
	case pivot.TrialRuns:
	case pivot.TrialKept:
		return c.keepTried(ctx)
	case pivot.TrialWaits:
		return fault.New(fault.Refused, "cannot confirm: the new system has not been booted")
	case pivot.TrialLost:
		return fault.New(fault.Refused, "cannot confirm: %s", c.Progress.Record.Error.Message)
	default:
		return fault.New(fault.Refused, "cannot confirm: no system is on trial here").WithHint("pivot status says what became of it")
	}
	c.Progress.Begin(pivot.StepProve, "looking at the system on trial")
	if lacks := c.lacks(ctx); len(lacks) > 0 {
		return fault.New(fault.Unavailable, "cannot confirm: %s", strings.Join(lacks, "; ")).
			WithHint("the trial goes on: correct that and confirm again before its time is over, see pivot status")
	}
	return c.confirm(ctx)
}
