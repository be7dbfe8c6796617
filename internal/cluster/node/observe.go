package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	"machine-pivot/internal/cluster/api"
	"machine-pivot/internal/cluster/hostpivot"
	"machine-pivot/internal/fault"
)

// memory is what the agent remembers of one desired MachineConfig.
type memory struct {
	config    string // its name
	data      []byte // as JSON; nil: not read
	digest    string // of data
	change    Change
	rehearsed bool
	proven    time.Time        // when the running system was last found to be equal; zero: not known
	verify    hostpivot.Verify // the last comparison
	compared  bool             // there was one
	failure   *failure         // the last one, also while it is tried again; nil: there is none
	retried   bool             // an administrator wants what has failed to be tried again
	judged    string           // ID of the run with a known result
}

// differs reports whether the last comparison has found that the running system is not as its MachineConfig. Another
// failure says nothing of that.
func (m *memory) differs() bool { return m.compared && !m.verify.OK }

// situation is what one step knows.
type situation struct {
	Facts
	node Node
	host hostpivot.Host
	try  time.Duration // how long a new system may take to prove itself; 0: no trial
	// takeover says that the cluster takes the running system for what is desired, and that pivot has not
	// compared it yet. It is adopted as it is: nobody has allowed a drain or a reboot for that.
	takeover bool
	// inherited says that the node is cordoned for the machine-config-daemon, which would end that.
	inherited bool
	// again is another attempt that is due, and not recorded on the node yet; nil: none.
	again *attempt
	// retry is what has failed and is to be tried again, and not recorded on the node yet; nil: none.
	retry *retry
}

// observe finds out how the node and its host are.
func (a *Agent) observe(ctx context.Context) (s situation, err error) {
	if s.node, err = a.readNode(ctx); err != nil {
		return s, err
	}
	desired := s.node.Annotations[api.DesiredConfig]
	s.Facts = Facts{Run: RunIdle, System: SystemOther, Change: ChangeUnknown, Drain: DrainNone, Ours: s.node.Annotations[api.CordonedFor] != ""}
	joins := mayJoin(s.node)
	if desired == "" && !s.Ours && !joins {
		a.remember("")
		return s, nil
	}
	s.host, err = a.Runner.Look(ctx)
	if joins {
		if desired = joinsWith(s.host.Status); err != nil || desired == "" {
			a.remember("")
			return s, nil
		}
	}
	a.remember(desired)
	switch {
	case errors.Is(err, hostpivot.ErrNotOstree):
		return s, nil
	case desired == "" && err == nil: // only what runs matters
		s.Run = runOf(s.host.Run, desired, "")
		if s.Run == RunIdle {
			a.judgeRun(&s)
		}
		return s, nil
	case err != nil && fault.KindOf(err) == fault.Refused: // the host's pivot cannot be used
		a.change.failIfDue(failure{reason: fault.WithRemedy(err), at: a.Now()})
	case err != nil:
		return s, err
	default:
		if err := a.observeHost(ctx, &s); err != nil {
			return s, err
		}
	}
	if s.Managed = desired != ""; !s.Managed {
		return s, nil
	}
	a.observeTakeover(&s)
	a.observeFailure(&s)
	a.recordRetried(&s)
	a.observeDrift(&s)
	s.Drain = drainOf(s.node, a.change.config, a.change.change, a.Policy)
	s.Change, s.Rehearsed = a.change.change, a.change.rehearsed
	s.Proven = !a.change.proven.IsZero() && a.Now().Sub(a.change.proven) < a.Policy.ProveEvery
	err = a.observePrefetch(ctx, &s)
	s.Reported = a.reported(s)
	return s, err
}

// remember forgets what is known of another desired MachineConfig.
func (a *Agent) remember(desired string) {
	if desired != a.change.config {
		a.change = memory{config: desired, change: ChangeUnknown}
	}
}

// readNode returns the node as the last step has left it, or reads it.
func (a *Agent) readNode(ctx context.Context) (Node, error) {
	if a.seen != nil {
		return *a.seen, nil
	}
	return a.Cluster.Node(ctx)
}

// observeHost finds out how far the host is, and what became of the last run.
func (a *Agent) observeHost(ctx context.Context, s *situation) (err error) {
	m, status := &a.change, s.host.Status
	if m.data == nil && !(status.Current() == m.config && status.Adopted()) {
		if err := a.readConfig(ctx); err != nil {
			return err
		}
	}
	s.System = systemOf(status, m.config, m.digest)
	s.Run = runOf(s.host.Run, m.config, askedFor(s))
	a.observeRetried(s)
	if s.Run == RunIdle {
		a.judgeRun(s)
	}
	if s.System == SystemCommitted { // whatever it needed, what is left needs a reboot
		m.change = rebootOf(s.node, a.Policy)
	}
	a.observeStray(s)
	a.observeAttempt(s)
	if s.try, err = tryOf(s.node, a.Policy); err != nil && m.failure == nil {
		m.fail(failure{state: api.StateUnreconcilable, reason: err.Error(), permanent: true, at: a.Now()})
	}
	if image := s.node.Annotations[api.DesiredImage]; image != "" && m.failure == nil {
		m.fail(failure{reason: "cannot give the node the image " + image + " of another object than its MachineConfig (image mode); name a MachineConfig that has it", permanent: true, at: a.Now()})
	}
	return nil
}

// tryOf returns how long a new system of a node may take to prove itself.
func tryOf(n Node, p Policy) (time.Duration, error) {
	text := n.Annotations[api.Try]
	if text == "" {
		return p.Try, nil
	}
	try, err := time.ParseDuration(text)
	if err != nil || try < 0 {
		return 0, fmt.Errorf("cannot boot the new system on trial: the annotation %s is %q; set it to a time such as 10m, and then remove %s", api.Try, text, api.FailedConfig)
	}
	return try, nil
}

// readConfig reads the desired MachineConfig. One that does not exist is a failure of the change.
func (a *Agent) readConfig(ctx context.Context) error {
	m := &a.change
	data, err := a.Cluster.MachineConfig(ctx, m.config)
	if errors.Is(err, ErrNoMachineConfig) {
		m.failIfDue(failure{reason: fmt.Sprintf("cannot read the MachineConfig %s: %v; name another one, or create it", m.config, err), at: a.Now()})
		return nil
	}
	if err != nil {
		return err
	}
	m.data, m.digest = data, hostpivot.DigestOf(data)
	return nil
}

// systemOf returns how far a host is on the way to a MachineConfig with a name. Its digest is known if it was read.
func systemOf(s hostpivot.Status, config, digest string) System {
	runs := s.Current() == config && s.Adopted()
	switch {
	case runs && s.Phase == phaseTrial:
		return SystemTrial
	case runs && s.Pending != nil:
		return SystemReverting
	case runs:
		return SystemTarget
	case s.Pending != nil && s.Desired() == config && s.Phase == phaseCommitted:
		return SystemCommitted
	case digest != "" && s.HasDownloaded(digest):
		return SystemDownloaded
	}
	return SystemOther
}

// The phases of pivot's status that the agent distinguishes.
const (
	phaseCommitted = "committed"
	phaseTrial     = "trial"
	phaseUndone    = "undone" // this boot came up without what was committed, or somebody has taken it back
	phaseFailed    = "failed"
)

// runOf returns the state of the host's run for a desired MachineConfig, and one that is asked for before its
// turn.
func runOf(r hostpivot.Run, desired, asked string) Run {
	switch {
	case r.State == hostpivot.RunRunning && r.Request.Verb == hostpivot.Download && r.Request.Config != desired && !(r.Request.Early && r.Request.Config == asked):
		return RunOutdated
	case r.State == hostpivot.RunRunning:
		return RunRunning
	}
	return RunIdle
}

// judgeRun takes note of the result of a run that has ended, once.
func (a *Agent) judgeRun(s *situation) {
	m, run := &a.change, s.host.Run
	if run.State != hostpivot.RunEnded || run.Request.ID == m.judged {
		return
	}
	if run.Rebooting { // into whatever was desired before
		a.waitForReboot(s)
		return
	}
	if run.Request.Config != m.config || run.Request.Early { // what that has not done, the change does
		return
	}
	m.judged = run.Request.ID
	if f := run.Failure; f != nil {
		m.fail(failureOf(f, a.Policy, a.Now()))
	} else if !reached(s.System, run.Request.Verb) {
		m.fail(failure{reason: fmt.Sprintf("pivot has ended its %s without an error, but the host is not at %s; pivot status on the host says more", run.Request.Verb, m.config), at: a.Now()})
	}
}

// waitForReboot waits for a reboot that systemd has accepted, counted from the result of the run.
func (a *Agent) waitForReboot(s *situation) {
	const limit = 30 * time.Minute
	if a.Now().Sub(s.host.Run.Ended) < limit {
		s.Run = RunRunning
		return
	}
	a.change.judged = s.host.Run.Request.ID
	a.change.fail(failure{permanent: true, at: a.Now(),
		reason: fmt.Sprintf("the machine has not rebooted within %s; see systemctl list-jobs on the host", limit)})
}

// reached reports whether a run that has succeeded has led to the system that it was for.
func reached(s System, verb hostpivot.Verb) bool {
	switch verb {
	case hostpivot.HandBack: // it was taken over again
		return true
	case hostpivot.Revert:
		return s != SystemReverting
	}
	return s != SystemOther && (verb != hostpivot.Apply || s != SystemDownloaded)
}

// drainOf returns how far the drain of a node for a MachineConfig is.
func drainOf(n Node, config string, change Change, p Policy) Drained {
	asked, applied := n.Annotations[api.DesiredDrain], n.Annotations[api.LastAppliedDrain]
	announced := n.Annotations[api.PostConfigAction] == api.ActionReboot
	switch {
	case change == ChangeSingle && announced:
		return DrainAnnounced
	case asked != api.DrainFor(config), !n.Unschedulable && (applied == asked || !p.ByController):
		return DrainNone
	case applied != asked:
		return DrainRequested
	case announced:
		return DrainAnnounced
	}
	return DrainComplete
}

// rebootOf returns the Change that a reboot is on a node.
func rebootOf(n Node, p Policy) Change {
	if p.SingleNode || n.Annotations[api.Topology] == api.TopologySingle {
		return ChangeSingle
	}
	return ChangeReboot
}

// reported says whether the node's annotations say what is the case.
func (a *Agent) reported(s situation) bool {
	note, failed := s.node.Annotations, s.node.Annotations[api.FailedConfig]
	state := note[api.StateOfNode]
	switch {
	case s.again != nil, s.retry != nil:
		return false
	case s.Failed:
		f := a.change.failure
		return state == f.state && note[api.Reason] == f.reason && note[api.DrainBlocked] == f.blocked && (f.soft || failed == a.change.config) && note[api.PostConfigAction] == "" && !withdrawn(s.node)
	case s.System == SystemTarget && a.early.cannot != "":
		return false
	case s.System == SystemTarget:
		return state == api.StateDone && note[api.CurrentConfig] == a.change.config && note[api.Reason] == "" && failed == "" &&
			note[api.PostConfigAction] == "" && note[api.DrainStarted] == "" && note[api.DrainBlocked] == "" && note[api.DesiredConfig] != "" && !withdrawn(s.node)
	case s.inherited:
		return false
	case s.takeover: // the node stays what it is for the cluster
		return true
	case s.claims(a.change.config): // as it does until it begins
		return false
	case blockedForAnother(s.node, a.change.config): // it has begun, and waited, with another MachineConfig
		return false
	case state == api.StateDegraded, state == api.StateUnreconcilable:
		return failed == "" || failed == a.change.config // kept while the change is tried again
	}
	return state == api.StateWorking
}

// cannot returns the annotation of a node that says why its machine cannot start the image of a MachineConfig.
func (s situation) cannot(config, verdicts, reason string) *string {
	return new(api.Cannot{Config: config, BootID: s.host.Start.Boot(), Verdicts: verdicts, Reason: reason}.String())
}

// withdrawn reports whether a drain was asked for that is neither complete nor needed any more.
func withdrawn(n Node) bool {
	return api.IsDrain(n.Annotations[api.DesiredDrain]) && n.Annotations[api.DesiredDrain] != n.Annotations[api.LastAppliedDrain]
}
