package machine

import (
	"cmp"
	"context"
	"errors"

	"machine-pivot/internal/disruption"
	"machine-pivot/internal/fault"
	"machine-pivot/internal/printable"
	"machine-pivot/internal/problem"
	"machine-pivot/internal/verdict"
	"machine-pivot/pivot"
)

// Outcome is how a run ended; the names are stable.
type Outcome string

// The outcomes.
const (
	OutcomeUnchanged  Outcome = "unchanged"   // neither the running system nor the next boot had to change
	OutcomeDownloaded Outcome = "downloaded"  // all was pulled; neither has changed
	OutcomeLive       Outcome = "live"        // the running system has changed; no reboot is needed
	OutcomeCommitted  Outcome = "committed"   // the next boot has changed; the reboot is left to the caller
	OutcomeRebooting  Outcome = "rebooting"   // the same, and systemd has accepted the reboot
	OutcomeEntering   Outcome = "entering"    // the next boot has changed, and the initramfs continues in it without a reboot
	OutcomeClosed     Outcome = "closed"      // the machine is proven to be at its target, and the first boot closed
	OutcomeAside      Outcome = "aside"       // the initramfs leaves the first boot to the started system
	OutcomeHandedBack Outcome = "handed-back" // the machine is the machine-config-daemon's
	OutcomeFailed     Outcome = "failed"
)

// Result is what a run did, as far as it came. A run fills it in; Conclude completes it. Its JSON is
// the output of the commands that change a machine.
type Result struct {
	Outcome Outcome `json:"outcome"`
	// Changed says that this run has changed the running system or the next boot, or downloaded
	// something. It is false if an earlier run has committed the same, and only the reboot is missing.
	Changed bool        `json:"changed"`
	Phase   pivot.Phase `json:"phase"` // of the transaction
	// Actions are the services that were notified of a change of the running system, in order.
	Actions []disruption.Action `json:"actions"`
	// RebootPending says that the next boot starts another deployment than the running one.
	RebootPending bool `json:"rebootPending"`
	// Drain says whether a cluster drains the node for this change.
	Drain pivot.Drain `json:"drain"`
	// MachineConfig is the one that was applied, as the machine records it; nil if the run had none.
	MachineConfig *pivot.MachineConfig `json:"machineConfig,omitempty"`
	LeftOut       []string             `json:"leftOut,omitempty"` // parts of it that were not applied
	Notes         []string             `json:"notes"`             // for people
	Error         *Failed              `json:"error,omitempty"`
}

// Failed is why a run failed.
type Failed struct {
	Class string `json:"class"` // the kind of the failure: fault.Kind.String
	pivot.Failure
	// Problems are those of the input, one by one, if it cannot be used.
	Problems problem.Report `json:"problems,omitempty"`
	// Verdicts are the names of those that say that this machine cannot start the image, if that is why.
	Verdicts []verdict.Name `json:"verdicts,omitempty"`
}

// maxNotes limits the notes of a result.
const maxNotes = 200

// Emit is the pivot.Emit that collects the notes of a run.
func (r *Result) Emit(e pivot.Event) {
	if e.Kind == pivot.EventNoted && len(r.Notes) < maxNotes {
		r.Notes = append(r.Notes, printable.Text(e.Message))
	}
}

// Report returns the result that a run fills in.
func (m *Machine) Report() *Result {
	if m.Result == nil {
		m.Result = &Result{}
	}
	return m.Result
}

// EndChanged records an outcome of a run that has changed something.
func (r *Result) EndChanged(outcome Outcome) { r.Outcome, r.Changed = outcome, true }

// Committed records that the next boot is what was asked for, and whether it has changed. The reboot
// needs a drain.
func (r *Result) Committed(changed bool) {
	if r.Outcome, r.Changed = OutcomeCommitted, changed; !r.Drain.Wanted {
		r.Drain = pivot.DrainForReboot()
	}
}

// Conclude returns the complete result of a run that ended with err. What the next boot starts is
// looked up on the machine.
func (m *Machine) Conclude(ctx context.Context, err error) Result {
	r := *m.Report()
	r.Phase = m.Progress.Content.Phase
	if r.Outcome == OutcomeRebooting {
		r.RebootPending = true
	} else if state, lost := m.Host.Observe(context.WithoutCancel(ctx), pivot.Target{}); lost == nil {
		r.RebootPending = state.Pending()
	}
	return r.Completed(err)
}

// Completed returns the result with err and without missing parts.
func (r Result) Completed(err error) Result {
	if err != nil {
		r.Outcome = OutcomeFailed
		r.Error = &Failed{Class: fault.KindOf(err).String(), Failure: *pivot.FailureOf(err)}
		if unusable, ok := errors.AsType[*problem.Unusable](err); ok {
			r.Error.Problems = unusable.Report
		}
		if refusal, ok := errors.AsType[*verdict.Refusal](err); ok {
			r.Error.Verdicts = refusal.Names
		}
	}
	r.Outcome, r.Phase = cmp.Or(r.Outcome, OutcomeUnchanged), cmp.Or(r.Phase, pivot.PhaseIdle)
	r.Actions = append([]disruption.Action{}, r.Actions...)
	r.Notes = append([]string{}, r.Notes...)
	r.Drain.Because = append([]string{}, r.Drain.Because...)
	return r
}
