package node

import (
	"context"
	"fmt"

	"machine-pivot/internal/cluster/api"
	"machine-pivot/internal/cluster/hostpivot"
	"machine-pivot/internal/pid1"
)

// maxAttempts is how often a MachineConfig is committed if the machine comes up with its old system each
// time, as in pivot's own first boot.
const maxAttempts = 3

// attempt is one of the attempts to boot into a MachineConfig: the first one, or one after a boot into the
// old system. A power cut can take a commit away, and a new system that does not start looks the same.
type attempt struct {
	number int
	start  pid1.StartID // in which it began
}

// attemptOf returns the attempt that a node's annotation has for a MachineConfig, or else the first.
func attemptOf(n Node, config string) attempt {
	a := attempt{number: 1}
	var of string
	if _, err := fmt.Sscanf(n.Annotations[api.Attempt], "%d %s %s", &a.number, &a.start, &of); err != nil || of != config {
		return attempt{number: 1}
	}
	return a
}

// annotation returns the attempt as the value of the node's annotation.
func (a attempt) annotation(config string) *string {
	return new(fmt.Sprintf("%d %s %s", a.number, a.start, config))
}

// observeAttempt finds out whether the host has booted its old system although the desired one was
// committed. Then there is another attempt, which begins with its record on the node, or a failure. Without
// an announced reboot, somebody has taken the commit back.
func (a *Agent) observeAttempt(s *situation) {
	m, note := &a.change, s.node.Annotations
	reason := fellBack(s.host.Status, m.config)
	if reason == "" || m.retried || m.failure != nil || s.Run != RunIdle {
		return
	}
	last := attemptOf(s.node, m.config)
	reported, failed := note[api.FailedConfig] == m.config, s.host.Status.Phase == phaseFailed
	switch {
	case reported, failed, last.number >= maxAttempts && last.start != s.host.Start:
		m.fail(failure{reason: reason, permanent: true, at: a.Now()})
	case last.start != s.host.Start && (last.number > 1 || note[api.PostConfigAction] == api.ActionReboot):
		s.again = &attempt{last.number + 1, s.host.Start}
	}
}

// sayAgain records an event about another attempt.
func (a *Agent) sayAgain(ctx context.Context, n Node, again *attempt) {
	if again != nil {
		a.event(ctx, n, Event{Reason: api.EventFailed, Warning: true,
			Message: fmt.Sprintf("the machine has booted its old system again; commits %s once more (attempt %d of %d)", a.change.config, again.number, maxAttempts)})
	}
}

// fellBack returns why a host runs its old system although the one with a MachineConfig was committed;
// "" if that is not so.
func fellBack(s hostpivot.Status, config string) string {
	if s.Desired() != config || s.Current() == config || s.Pending != nil || s.Phase != phaseUndone && s.Phase != phaseFailed {
		return ""
	}
	if s.Error != nil {
		return "the machine has booted its old system again: " + s.Error.WithHint()
	}
	return "the machine has booted its old system again; pivot status on the host says more"
}
