package firstboot

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/machine"
	"machine-pivot/internal/machineconfig"
	"machine-pivot/pivot"
)

// takenBack reports whether another deployment has completed this first boot, of the file with a digest: then the host
// was rolled back to the running one. A host with a single deployment cannot have been rolled back: it was reinstalled
// and has kept its /var.
func (b *FirstBoot) takenBack(state pivot.State, digest string) bool {
	journal := &b.Progress.Content
	closed, _ := machine.ClosingIn(*journal)
	if closed == nil && (journal.WasCommitted() || journal.Phase == pivot.PhaseDone) {
		if closed = b.closedElsewhere(state, digest); closed != nil {
			_ = closed.KeepIn(journal) // texts can be encoded
		}
	}
	return closed != nil && closed.Request == digest && closed.Deployment != state.Booted.ID() && state.Deployments > 1
}

// closedElsewhere returns how this first boot has ended in another deployment, if that could not be journaled: the closed
// file says so. What cannot be looked at says nothing. nil: it has not ended.
func (b *FirstBoot) closedElsewhere(state pivot.State, digest string) *machine.Closing {
	all, err := b.Host.Sysroot().Deployments()
	if err != nil {
		return nil
	}
	for _, d := range all {
		closed, err := machine.ClosedFirstBoot(d.Path)
		if err == nil && string(closed) == digest && d.ID() != state.Booted.ID() {
			return &machine.Closing{Deployment: d.ID(), Request: digest}
		}
	}
	return nil
}

// hold leaves a host that was rolled back as it is, on this boot and on later ones. It closes
// the first boot in this deployment too, as "pivot rollback" does: if the file stayed, the
// machine-config-daemon's first boot would also go forward.
func (b *FirstBoot) hold(plan pivot.Plan) error {
	state, target := plan.From(), plan.To()
	b.Progress.Begin(pivot.StepProve, "the machine is what it was before its first boot")
	closed, err := machine.ClosingIn(b.Progress.Content)
	if err != nil {
		return err
	}
	b.Progress.Content.Target, b.Progress.Content.Error = target, nil
	if err := b.end(pivot.PhaseUndone, state); err != nil {
		return err
	}
	b.Progress.Note(fmt.Sprintf("somebody went back: the first boot was completed in deployment %s, but %s runs (%s); it stays as it is",
		closed.Deployment, state.Booted.ID(), strings.Join(pivot.Prove(state, target), "; ")))
	b.Progress.Note(machine.GoForward)
	return nil
}

// reopen opens a first boot again that was completed or given up. It clears the journal,
// except for the history and for what is independent of the transaction. It reports whether it
// has renamed the file.
func (b *FirstBoot) reopen() (renamed bool, err error) {
	before := b.Progress.Content
	b.Progress.Content = pivot.JournalContent{Phase: pivot.PhaseIdle, History: before.History, Features: before.WithoutHolds()}
	machine.DropClosing(&b.Progress.Content)
	if _, err := os.Lstat(b.Host.Path(b.path())); !errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	file := b.Host.Path(b.File)
	if _, err := os.Lstat(file + machineconfig.ClosedSuffix); errors.Is(err, fs.ErrNotExist) {
		return false, nil // there never was a file: reading it returns the error
	}
	if err := hostfiles.Rename(b.Host.Disk, file+machineconfig.ClosedSuffix, file); err != nil {
		return false, fault.New(fault.CannotWrite, "cannot open the first boot again: %w", err)
	}
	return true, nil
}

// orClosedAgain closes a first boot that this run has reopened, if the run has failed before it
// journaled anything. It returns the run's failure.
func (b *FirstBoot) orClosedAgain(failure error) error {
	if failure == nil || b.Progress.Journaled() {
		return failure
	}
	if err := b.moveAway(); err != nil {
		return fmt.Errorf("%w (and %v)", failure, err)
	}
	return failure
}
