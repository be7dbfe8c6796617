package firstboot

import (
	"context"

	"machine-pivot/internal/fault"
	"machine-pivot/pivot"
)

// giveUp ends the transaction of a machine that keeps coming up on its old system. It
// returns an error that says why.
func (b *FirstBoot) giveUp(ctx context.Context, converger *pivot.Converger, plan pivot.Plan) error {
	err := fault.New(fault.Refused, "cannot pivot this machine: after %d attempts it still comes up without the target: %s",
		b.Progress.Content.Attempt, converger.Missing(ctx, plan)).WithHint("correct what is named, then: pivot firstboot --again")
	if b.Progress.Content.Phase != pivot.PhaseFailed {
		b.Progress.Content.Error = pivot.FailureOf(err)
		if unrecorded := b.Progress.Enter(pivot.PhaseFailed, plan.From().BootID); unrecorded != nil { // the next boot gives up again
			b.Progress.Note(unrecorded.Error())
		}
	}
	return err.WithHint("see the journal of the boot before (journalctl -b -1); to try again: pivot firstboot --again")
}
