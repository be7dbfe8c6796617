package pivot

import "context"

// Step names a step of a change; the names are stable: they are in journals, in "status -o json" and in metrics.
type Step string

const (
	StepRead      Step = "read"      // read and validate the request
	StepObserve   Step = "observe"   // look at the host
	StepPreflight Step = "preflight" // check everything that can be checked before any write
	StepBegin     Step = "begin"     // journal the beginning; shown as the preflight
	StepPull      Step = "pull"      // fetch the image and import its commit
	StepWait      Step = "wait"      // wait for a maintenance window or a FleetLock slot
	StepPrepare   Step = "prepare"   // make the deployment
	StepReady     Step = "ready"     // look for the last time; shown as the commit
	StepIntend    Step = "intend"    // journal the intention; shown as the commit
	StepCommit    Step = "commit"    // the one atomic step
	StepKeep      Step = "keep"      // journal what is committed; shown as the commit
	StepReboot    Step = "reboot"
	StepProve     Step = "prove" // compare the running system with the target
)

// Writes is how far what a step writes reaches. Each value includes the ones before.
type Writes int

const (
	WritesNothing    Writes = iota
	WritesRecords           // pivot's own files, and what is asked for outside of /etc
	WritesRepository        // images, which no boot starts
	WritesDeployment        // a deployment that no boot starts
	WritesNextBoot          // what the next boot starts
)

func (w Writes) String() string {
	return [...]string{"nothing", "records", "repository", "deployment", "next boot"}[w]
}

// Undo is what is done when a step fails or is ended by a signal.
type Undo string

const (
	UndoNothing Undo = "nothing"   // it has written nothing that matters
	UndoLater   Undo = "later"     // what is written stays: the next run continues with it, or removes it
	UndoDiscard Undo = "discard"   // the new deployment is discarded
	UndoTake    Undo = "take back" // the commit is taken back, and the journal is restored
	UndoNone    Undo = "none"      // there is no way back: the next run continues
)

// Info describes a step.
type Info struct {
	Step   Step
	Does   string // for people
	Shown  Step   // as which it is shown and journaled, with the steps before and after it; "": as itself
	Phase  Phase  // that the journal has from its beginning on; "": as before
	Writes Writes // at most
	Stops  bool   // a signal ends it; otherwise it ends first
	Undo   Undo
	Detour bool // only if there is something to wait for; then all before is done again
}

// Steps returns the steps of a change in their order. Until StepCommit the next boot is the old system; after it the
// new one. This is the only place that knows the order. Transaction carries it out, docs/dev/states.md shows it, and the
// sweep of crashes checks that a program keeps to it.
func Steps() []Info {
	return []Info{
		{Step: StepRead, Does: "read the request, finish what an earlier run has left", Writes: WritesRecords, Stops: true, Undo: UndoNothing},
		{Step: StepObserve, Does: "look at the machine, compare it with the target", Writes: WritesRepository, Stops: true, Undo: UndoNothing},
		{Step: StepPreflight, Does: "check what could fail", Writes: WritesNothing, Stops: true, Undo: UndoNothing},
		{Step: StepBegin, Does: "journal the beginning", Shown: StepPreflight, Phase: PhaseApplying, Writes: WritesRecords, Stops: true, Undo: UndoLater},
		{Step: StepPull, Does: "pull the image, learn what only its content says", Writes: WritesRepository, Stops: true, Undo: UndoLater},
		{Step: StepWait, Does: "wait for the window or the fleet's lock", Writes: WritesRecords, Stops: true, Undo: UndoLater, Detour: true},
		{Step: StepPrepare, Does: "make a deployment that no boot starts", Writes: WritesDeployment, Stops: true, Undo: UndoDiscard},
		{Step: StepReady, Does: "look for the last time whether all is as planned", Shown: StepCommit, Writes: WritesDeployment, Stops: true, Undo: UndoDiscard},
		{Step: StepIntend, Does: "journal the intention", Shown: StepCommit, Phase: PhaseCommitted, Writes: WritesDeployment, Undo: UndoDiscard},
		{Step: StepCommit, Does: "make the deployment the next boot", Writes: WritesNextBoot, Undo: UndoTake},
		{Step: StepKeep, Does: "journal the deployment; a feature may make the old one the default again", Shown: StepCommit, Writes: WritesNextBoot, Undo: UndoNone},
		{Step: StepReboot, Does: "enter the next boot", Writes: WritesNextBoot, Stops: true, Undo: UndoNone},
		{Step: StepProve, Does: "compare the running system with the target, end the change", Phase: PhaseDone, Writes: WritesNextBoot, Stops: true, Undo: UndoNone},
	}
}

// work is what a transaction does in a step.
type work map[Step]func(ctx context.Context, s Info) error

// inOrder does the work in the order of Steps, with what features do before and after each. A step that fails is undone,
// and ends it.
func (t *Transaction) inOrder(ctx context.Context, plan *Plan, work work) error {
	for _, s := range Steps() {
		do, has := work[s.Step]
		if !has {
			continue
		}
		if !s.Stops {
			ctx = context.WithoutCancel(ctx)
		}
		err := t.Features.Before(ctx, s.Step, plan)
		if err == nil {
			err = do(ctx, s)
		}
		if after := t.after(ctx, s.Step, plan, err != nil); err == nil {
			err = after
		}
		if err != nil {
			return t.undo(ctx, s.Undo, err)
		}
	}
	return nil
}

// after calls the features' After, and notes what they add to the plan's notes.
func (t *Transaction) after(ctx context.Context, step Step, plan *Plan, failed bool) error {
	known := len(plan.Notes)
	if err := t.Features.After(ctx, step, plan, failed); err != nil {
		return err
	}
	for _, note := range plan.Notes[known:] {
		t.Progress.Note(note)
	}
	return nil
}

// undo undoes a step that has failed with err, which it returns.
func (t *Transaction) undo(ctx context.Context, how Undo, err error) error {
	switch how {
	case UndoDiscard:
		return t.discard(ctx, err)
	case UndoTake:
		return t.unjournal(ctx, err)
	}
	return err
}
