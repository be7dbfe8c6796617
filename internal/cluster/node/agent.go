package node

import (
	"context"
	"errors"
	"time"

	"github.com/sirupsen/logrus"

	pivotapi "machine-pivot/internal/api"
	"machine-pivot/internal/cluster/api"
	"machine-pivot/internal/cluster/hostpivot"
)

// Agent is the agent of one node. What it remembers only saves work: another agent that knows nothing
// continues from the annotations and the host.
type Agent struct {
	Cluster Cluster
	Runner  Runner
	Drainer Drainer
	Policy  Policy
	Version string // of this program
	Now     func() time.Time
	Log     *logrus.Logger
	Metrics *Metrics
	Events  *Events

	seen   *Node     // the newest known state of the node; nil: read it again
	kept   time.Time // since when seen is kept while there is nothing to do but wait; zero: it is not
	change memory    // of the desired MachineConfig
	early  early     // of the one that is downloaded before its turn
	said   said      // what was published
	drift  drift     // what the host's watch has found

	handing bool // this agent has asked the host's pivot to give the host back
}

// Cluster is the node's cluster, as the agent uses it.
type Cluster interface {
	// Node reads the node.
	Node(ctx context.Context) (Node, error)
	// MachineConfig reads a MachineConfig as JSON. One that does not exist is ErrNoMachineConfig.
	MachineConfig(ctx context.Context, name string) ([]byte, error)
	// Patch changes the node and returns its new state. If the node has changed since it was read, Patch
	// changes nothing and returns ErrConflict.
	Patch(ctx context.Context, read Node, p Patch) (Node, error)
	Recorder
	// PublishSystem writes the status of the node's NodeSystem.
	PublishSystem(ctx context.Context, of Node, s api.NodeSystemStatus) error
	// PublishUpdate writes the node's MachineConfigNode. A condition that the object has already keeps its time.
	PublishUpdate(ctx context.Context, of Node, p api.Progressed) error
}

// The errors of a Cluster that the agent distinguishes.
var (
	ErrConflict        = errors.New("the node has changed since it was read")
	ErrNoMachineConfig = errors.New("there is no such MachineConfig")
)

// Node is what the agent uses of a Node object.
type Node struct {
	Name, UID       string
	ResourceVersion string
	Annotations     map[string]string
	Unschedulable   bool // cordoned, by whomever
	ControlPlane    bool // the node is one of the control plane
	Ready           bool // its kubelet says so
}

// Patch is a change of a Node object.
type Patch struct {
	Annotations   map[string]*string // by name; nil removes one
	Unschedulable *bool              // nil leaves it
}

// Event is an event about the node.
type Event struct {
	Reason  string // api.Event…
	Message string // for people
	Warning bool
}

// Runner runs pivot on the host: see package hostpivot.
type Runner interface {
	// Look observes the host. A host that is not booted from an ostree deployment is hostpivot.ErrNotOstree;
	// an error of kind fault.Refused means that this agent cannot use the host's pivot.
	Look(ctx context.Context) (hostpivot.Host, error)
	// Start starts a run of pivot, which continues if the agent ends.
	Start(ctx context.Context, r hostpivot.Request) error
	// Tell tells the host what the cluster wants, for people; nil: nothing.
	Tell(w *pivotapi.Wanted) error
	// Stop stops a run at its next safe point.
	Stop(ctx context.Context) error
	// Plan returns what a downloaded MachineConfig needs. A *hostpivot.Failure is pivot's.
	Plan(ctx context.Context, r hostpivot.Request) (hostpivot.Plan, error)
	// Verify compares the running system with its MachineConfig. A *hostpivot.Failure is pivot's.
	Verify(ctx context.Context) (hostpivot.Verify, error)
	// Watch has the host compared whenever something changes, or no longer, if that is not so already. What
	// is found is in hostpivot.Host.
	Watch(ctx context.Context, on bool) error
}

// Drainer empties the node. It does not cordon the node: that is one change with the record of who has
// cordoned it, which only the agent can make (actCordon).
type Drainer interface {
	// Rehearse returns an error if pods would not be evicted now; the error names what stands in the
	// way. One of kind fault.Refused forbids the drain; what another one names may end when the node is cordoned.
	// It changes nothing.
	Rehearse(ctx context.Context) error
	// Drain evicts the node's pods and waits until they are gone. It returns within some minutes, and
	// is called again after an error, which names what stands in the way. A node that is not cordoned any
	// more, or is another one of that name, is ErrConflict.
	Drain(ctx context.Context, of Node) error
}

// Policy is how an administrator wants the agent to work.
type Policy struct {
	// ByController leaves cordon, drain and uncordon to a controller, by the annotations.
	ByController bool
	// SingleNode says that the node is the only one of its cluster, and is not drained. The annotation
	// api.Topology says so too.
	SingleNode bool
	// DrainLimit is how long a drain, or its rehearsals, may fail.
	DrainLimit time.Duration
	// KeepDraining continues with a drain after DrainLimit. Otherwise the node is given back.
	KeepDraining bool
	// Unsupported is what happens to changes that only an installation can make: pivot's flag of that
	// name.
	Unsupported string
	// Try is how long a new system may take to prove itself before the old one is booted again; 0: no
	// trial. The node's annotation api.Try takes precedence.
	Try time.Duration
	// ProveEvery is how often a node at rest is compared with its MachineConfig.
	ProveEvery time.Duration
}

// The times between two steps.
const (
	pollRun    = 5 * time.Second  // of a run
	pollNode   = time.Minute      // of the node meanwhile
	pollDrain  = 10 * time.Second // of a controller's drain
	retryDrain = time.Minute      // of one's own drain
	maxRetry   = time.Hour        // between tries of a change
)

// Step does one step: it observes, decides, and acts. It returns how long to wait before the next one,
// unless the node changes earlier. After an error, which is about the cluster's API or the host's
// systemd, the same step is to be repeated.
func (a *Agent) Step(ctx context.Context) (wait time.Duration, err error) {
	s, action, err := a.look(ctx)
	if err != nil {
		a.seen = nil
		return 0, err
	}
	a.Log.WithFields(logrus.Fields{"action": action, "config": a.change.config, "system": s.System, "drain": s.Drain}).Debug("step")
	a.publish(ctx, s, action)
	a.tell(s, action)
	if action == ActionWait {
		a.keep(s.node)
		return pollRun, nil
	}
	a.seen = nil
	wait, err = a.act(ctx, s, action)
	if errors.Is(err, ErrConflict) {
		return 0, nil
	}
	return wait, err
}

// look observes and decides. What is known of the node from before is good enough for a wait only.
func (a *Agent) look(ctx context.Context) (situation, Action, error) {
	if a.Now().Sub(a.kept).Abs() >= pollNode {
		a.forget()
	}
	s, err := a.observe(ctx)
	if action := Decide(s.Facts); err != nil || a.kept.IsZero() || action == ActionWait {
		return s, action, err
	}
	a.forget()
	s, err = a.observe(ctx)
	return s, Decide(s.Facts), err
}

// keep keeps the state of the node, so that a run that takes long does not cost a request each time it is
// looked at. Run's wake ends that.
func (a *Agent) keep(n Node) {
	if a.seen = &n; a.kept.IsZero() {
		a.kept = a.Now()
	}
}

// forget has the next step read the node, if it was kept.
func (a *Agent) forget() {
	if !a.kept.IsZero() {
		a.seen, a.kept = nil, time.Time{}
	}
}

// act carries out an action.
func (a *Agent) act(ctx context.Context, s situation, action Action) (time.Duration, error) {
	switch action {
	case ActionStop:
		return pollRun, a.Runner.Stop(ctx)
	case ActionBegin:
		return 0, a.actBegin(ctx, s)
	case ActionDownload:
		if !s.takeover {
			a.event(ctx, s.node, Event{Reason: api.EventUpdateStarted, Message: "checks and downloads " + a.change.config})
		}
		return pollRun, a.start(ctx, s, hostpivot.Download)
	case ActionPrefetch:
		return pollRun, a.actPrefetch(ctx)
	case ActionPlan:
		return 0, a.actPlan(ctx, s)
	case ActionRehearse:
		return 0, a.actRehearse(ctx, s)
	case ActionCordon:
		return 0, a.actCordon(ctx, s)
	case ActionDrain:
		return a.actDrain(ctx, s)
	case ActionAnnounce:
		return 0, a.actAnnounce(ctx, s)
	case ActionApply:
		return pollRun, a.actApply(ctx, s)
	case ActionRevert:
		return pollRun, a.start(ctx, s, hostpivot.Revert)
	case ActionProve:
		return 0, a.actProve(ctx, s)
	case ActionUncordon:
		return a.actUncordon(ctx, s)
	case ActionDone:
		return 0, a.actDone(ctx, s)
	case ActionReport:
		return 0, a.actReport(ctx, s)
	}
	a.watch(ctx, s)
	return a.rest(), nil
}

// rest returns how long a node may be left alone. Its end is the next try after a failure, the next comparison of the
// system, or the next time to publish the node's state.
func (a *Agent) rest() time.Duration {
	wait := min(a.untilDue(), publishAgain/2)
	if a.drift.later > 0 {
		return min(wait, a.drift.later)
	}
	return wait
}

func (a *Agent) untilDue() time.Duration {
	if f := a.change.failure; f != nil && !f.permanent {
		return max(f.next().Sub(a.Now()), time.Second)
	}
	if a.change.proven.IsZero() {
		return a.Policy.ProveEvery
	}
	return max(a.change.proven.Add(a.Policy.ProveEvery).Sub(a.Now()), time.Second)
}

// patch changes the node, and keeps its new state for the next step.
func (a *Agent) patch(ctx context.Context, s situation, p Patch) error {
	n, err := a.Cluster.Patch(ctx, s.node, p)
	if err != nil {
		return err
	}
	a.seen = &n
	return nil
}

// event records an event.
func (a *Agent) event(ctx context.Context, n Node, e Event) {
	a.Events.Record(ctx, a.Log.WithField("config", a.change.config), n, e)
}
