// Package nodeagent is a world for the node agent: a Node object and a machine, both in memory, and
// whoever else changes them. Each call of the agent can be its last one.
package nodeagent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"strconv"
	"time"

	"github.com/sirupsen/logrus"

	"machine-pivot/internal/cluster/api"
	"machine-pivot/internal/cluster/hostpivot"
	"machine-pivot/internal/cluster/node"
)

// World is a node, its machine and its cluster.
type World struct {
	Node    node.Node
	Configs map[string]Config
	Machine Machine
	Pods    int // on the node, that a drain evicts
	Policy  node.Policy
	Clock   time.Time
	Metrics *node.Metrics // of all agents; nil: none

	Unpublished int // how often the next NodeSystems cannot be written

	Blocked    string // why pods cannot be evicted; "" if they can
	Forbidden  string // why the policy forbids that; "" if it does not
	Evictions  int    // drains that evicted pods
	Events     []string
	Said       []string // the messages of the events
	States     []string // that the node had, by the agent
	Violations []string
	Requests   map[string]int                // calls of the cluster, by their names
	System     api.NodeSystemStatus          // that was published last
	Updates    []api.MachineConfigNodeStatus // that were published

	// Cluster and Drainer are others than the world's own, for example of a real API server; nil: its own.
	// Whoever sets them keeps Node and Pods up to date.
	Cluster node.Cluster
	Drainer node.Drainer

	// Before is called before each call of the agent, with its number from 1. It may change the world.
	Before func(call int, name string)
	// Kills says in which calls the agent is killed.
	Kills map[int]When
	// Fault is the number of a call that fails once, without any effect; 0: none.
	Fault int

	calls int
	dead  bool
}

// When is when a call kills the agent.
type When string

// The times of a kill.
const (
	BeforeCall When = "before" // the call has no effect
	AfterCall  When = "after"  // the caller does not learn that
	PowerCut   When = "power"  // after it, with the machine's power
)

// Config is a MachineConfig, as far as it concerns the agent.
type Config struct {
	Reboot, Drain bool // what it needs
	Invalid       bool // pivot refuses it
	Installs      bool // only an installation can make it
	ApplyFails    bool // for good, before anything is committed
	FallsBack     bool // the machine boots its old system
	Lost          int  // how often a power cut takes its commit away
	Differs       bool // the new system fails its proof
	Unavailable   int  // how often its download fails
	// CannotStart are the verdicts by which the machine cannot start its image.
	CannotStart []string

	Arguments int // that the new system lacks
	LeftOut   int // parts that only an installation can make, and that are left out
}

// New returns a world in which a node has the MachineConfig a, and a number of others exist.
func New() *World {
	w := &World{
		Node: node.Node{Name: "n1", UID: "u1", ResourceVersion: "1", Annotations: map[string]string{
			api.DesiredConfig: "a", api.CurrentConfig: "a", api.StateOfNode: api.StateDone, "other": "kept",
		}},
		Configs: map[string]Config{"a": {}, "reboot": {Reboot: true, Drain: true}, "second": {Reboot: true, Drain: true}, "live": {}, "drain": {Drain: true}},
		Pods:    2, Clock: beginning,
		Policy:   node.Policy{DrainLimit: 5 * time.Minute, ProveEvery: 10 * time.Minute, Unsupported: "stop"},
		Machine:  Machine{Current: "a", Desired: "a", Phase: "done", RunTicks: 3, RecordedBy: "pivot"},
		Requests: map[string]int{},
	}
	return w
}

// beginning is when a world begins.
var beginning = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// Since returns how long the world has gone on.
func (w *World) Since() time.Duration { return w.Clock.Sub(beginning) }

var (
	errKilled = errors.New("the agent was killed")
	errFault  = errors.New("no answer")
)

// Agent returns a new agent, which knows nothing.
func (w *World) Agent() *node.Agent {
	log := logrus.New()
	log.SetOutput(io.Discard)
	w.dead = false
	a := &node.Agent{
		Cluster: w.Cluster, Runner: machineRunner{w, &hostpivot.Answer{}}, Drainer: w.Drainer, Policy: w.Policy, Version: "test", Metrics: cmp.Or(w.Metrics, &node.Metrics{}),
		Now: func() time.Time { return w.Clock }, Log: log,
	}
	if a.Cluster == nil {
		a.Cluster = cluster{w}
	}
	if a.Drainer == nil {
		a.Drainer = drainer{w}
	}
	a.Events = &node.Events{Cluster: a.Cluster, Now: a.Now}
	return a
}

// Run runs agents until settled, and returns how many calls they made. An agent that is killed is
// followed by another one.
func (w *World) Run(settled func() bool) (calls int, err error) {
	agent := w.Agent()
	for step := 0; !settled() || w.Machine.Running(); step++ {
		if step == 3000 {
			return w.calls, fmt.Errorf("not settled after %d steps: %s", step, w)
		}
		if agent, err = w.step(agent); err != nil {
			return w.calls, err
		}
	}
	return w.calls, nil
}

// Idle runs an agent for some more steps. A step in which it is killed does not count: the next agent makes it.
func (w *World) Idle(steps int) error {
	agent := w.Agent()
	for steps > 0 {
		next, err := w.step(agent)
		if err != nil {
			return err
		}
		if next == agent {
			steps--
		}
		agent = next
	}
	return nil
}

func (w *World) step(agent *node.Agent) (*node.Agent, error) {
	wait, err := agent.Step(context.Background())
	switch {
	case w.dead:
		return w.Agent(), nil
	case errors.Is(err, errFault):
		wait = time.Second
	case err != nil:
		return agent, err
	}
	if w.watch() { // which wakes the agent
		wait = min(wait, time.Second)
	}
	if w.Clock = w.Clock.Add(wait); wait > 0 {
		w.Pass()
	}
	if w.dead {
		return w.Agent(), nil
	}
	return agent, nil
}

// HandBack runs agents that give the node back, until one is done or refuses. One that is killed is
// followed by another one.
func (w *World) HandBack() (*node.Handed, error) {
	agent := w.Agent()
	for range 100 {
		wait, done, err := agent.HandBack(context.Background())
		if !w.dead && (done != nil || err != nil) {
			return done, err
		}
		if w.Clock = w.Clock.Add(wait); !w.dead && wait > 0 {
			w.Pass()
		}
		if w.dead {
			agent = w.Agent()
		}
	}
	return nil, fmt.Errorf("the node is not given back: %s", w)
}

// Calls returns how many calls the agents have made.
func (w *World) Calls() int { return w.calls }

// call makes a call of the agent, or kills it.
func (w *World) call(name string, effect func() error) error {
	if w.dead {
		return errKilled
	}
	w.calls++
	if w.Before != nil {
		w.Before(w.calls, name)
	}
	if w.calls == w.Fault {
		return fmt.Errorf("%s: %w", name, errFault)
	}
	when := w.Kills[w.calls]
	if when == BeforeCall {
		w.dead = true
		return errKilled
	}
	err := effect()
	if when == PowerCut {
		w.reboot()
	}
	if when != "" {
		w.dead = true
		return errKilled
	}
	return err
}

// Violated records a broken promise.
func (w *World) Violated(format string, args ...any) {
	w.Violations = append(w.Violations, fmt.Sprintf(format, args...))
}

// Change changes the Node object as somebody else does. What leaves the object as it is makes no new version.
func (w *World) Change(change func(n *node.Node)) {
	before := w.Node
	w.Node.Annotations = maps.Clone(w.Node.Annotations)
	if change(&w.Node); before.Unschedulable == w.Node.Unschedulable && maps.Equal(before.Annotations, w.Node.Annotations) {
		return
	}
	version, err := strconv.Atoi(w.Node.ResourceVersion)
	if err != nil {
		w.Violated("resource version: %v", err)
	}
	w.Node.ResourceVersion = strconv.Itoa(version + 1)
	if !w.Node.Unschedulable && w.Pods == 0 {
		w.Pods = 2 // the scheduler places new ones
	}
}

// Want names another desired MachineConfig.
func (w *World) Want(config string) {
	w.Change(func(n *node.Node) { n.Annotations[api.DesiredConfig] = config })
}

// Note returns an annotation of the node.
func (w *World) Note(name string) string { return w.Node.Annotations[name] }

// State returns the node's state.
func (w *World) State() string { return w.Note(api.StateOfNode) }

// String describes the world.
func (w *World) String() string {
	return fmt.Sprintf("annotations %v, unschedulable %v, pods %d, machine %+v, events %q, violations %q", w.Node.Annotations, w.Node.Unschedulable, w.Pods, w.Machine, w.Events, w.Violations)
}
