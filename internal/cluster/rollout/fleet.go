// Package rollout decides which node of a fleet gets which MachineConfig when, and writes that on the nodes.
//
// Decide is the whole policy, as a function of values. A Controller carries out its decisions. Of the nodes that a pool
// has begun to change, no more than maxUnavailable are disturbed at a time, in any order of events. This also holds if a
// Controller is killed between two requests, has old caches, or acts beside another one. The API server refuses each write if the object is not
// the version that the Controller has read. There are five rules:
//
//  1. A Controller takes a slot by an update of the PoolRollout, after it has read the node.
//  2. It gives a configuration to a node with a slot, by a patch of the node's version that it has read. Before that an
//     update makes a new version of the PoolRollout (status.round).
//  3. Before it returns a slot, it changes the node: the annotation slot-released gets the version of the PoolRollout
//     that it has read. For a deleted node, it asks the API server.
//  4. Then it returns the slot, by an update of that same version of the PoolRollout.
//  5. It takes a slot only in a PoolRollout with the finalizer, and removes the finalizer only from a version without
//     slots.
//
// Claim: a node that gets a configuration has a slot. Suppose that Controller A gives node n a configuration at time g,
// and that Controller B has returned its slot between A's update (rule 2, time a) and g. B has updated a version at least
// as new as A's. So B has read it after a, and has changed n after that (rule 3). A has read n before a, so n is another
// version at g, and the API server refuses A's patch. If A's patch came before B's change of n, the API server has
// refused that change, or B has seen what A gave. Then n was healthy with it, or passes its slot on (spec.passSlotOn). If A's
// update came after B had read the PoolRollout, the API server refuses B's update.
//
// The slots are in one object, and there are at most maxUnavailable. Only the pool master has nodes of the control plane,
// and it has one slot.
package rollout

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	v1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"machine-pivot/internal/cluster/api"
)

// Fleet is what Decide knows.
type Fleet struct {
	Now   time.Time
	Self  string // the node on which the controller runs; "" if that is not known
	Nodes []Node
	Pools []Pool
	// Workloads has those that the pools' checks name and that exist: why one is not available, or "".
	Workloads map[api.WorkloadReference]string
	// Jobs are those of the hooks, by namespace and name.
	Jobs map[string]JobState
	// HealthChecks are those of others, for which nodes are deleted or rebooted.
	HealthChecks []HealthCheck
}

// Node is what is used of a Node and its NodeSystem.
type Node struct {
	Name, Version       string // Version is its resourceVersion
	Labels, Annotations map[string]string
	Created             time.Time
	Cordoned            bool
	Taints              []corev1.Taint
	// Problem is why kubelet does not take pods, such as "is not Ready"; "": it does.
	Problem string
	// NotReadySince is since when the node is not Ready; zero: it is.
	NotReadySince time.Time
	// Away is for how long it was not Ready, if it has just become Ready; else 0.
	Away   time.Duration
	BootID string
	System *api.JudgedSystem // nil: no agent of pivot has written any
	// Refused is why the API server has refused a change of the node in the last minute, such as by a webhook; "": it has not.
	Refused string
	// Denied is Refused until a change succeeds, which is tried once a minute: who reads what is waited for sees the cause.
	Denied string
	// Check is why the pool's expression is not true for the node; "" if it is, or there is none.
	Check string
}

// Pool is a MachineConfigPool with its PoolRollout.
type Pool struct {
	Name, UID string
	// Orphan says that there is no such MachineConfigPool any more, and only its PoolRollout is left, with slots.
	Orphan         bool
	Version        string // the resourceVersion of the MachineConfigPool
	Generation     int64
	Selector       *v1.LabelSelector
	Paused         bool
	MaxUnavailable *intstr.IntOrString
	Configuration  api.PoolConfiguration
	Status         api.MachineConfigPoolStatus
	// RolloutVersion is the resourceVersion of the PoolRollout; "": there is none yet.
	RolloutVersion    string
	RolloutGeneration int64
	Spec              api.PoolRolloutSpec
	Rollout           api.PoolRolloutStatus
	// Finalizers are those of the PoolRollout, and Deleted says that it is removed as soon as it has none.
	Finalizers []string
	Deleted    bool
	// CheckProblem is why the expression of the pool's checks cannot be used; "" if it can.
	CheckProblem string
}

// Decision is what is due.
type Decision struct {
	Pools []PoolDecision // in the order of Fleet.Pools
	// Marked are the nodes with other marks than before, after all else.
	Marked []Marked
	// Next is when something is due even if nothing changes; zero: never.
	Next time.Time
}

// PoolDecision is what is due for a pool. Its parts are carried out in their order, and nothing after one that
// fails.
type PoolDecision struct {
	// Released are nodes that give their slots back, or that have ended their download before their turn. They are not
	// in Rollout.Taken any more, and do not count in Rollout.Downloads.
	Released []Node
	// Gone are the same, if they are in the cluster no more.
	Gone []string
	// Rollout is the new status of the PoolRollout. It has the slots of the nodes in Given.
	Rollout api.PoolRolloutStatus
	Given   []Change
	Hooks   []Hook // are created
	Asked   []Node // are asked to download Rollout.Target before their turn
	Status  api.MachineConfigPoolStatus
	// Held says that no further node may begin because of the pool's own settings. It is paused, or its window, the
	// order of pools or the soak time is waited for.
	Held   bool
	Events []Event // about what Rollout has changed
}

// Marked is what others see of a node.
type Marked struct {
	Node
	Pending  bool      // it has the taint Pending
	Unguard  bool      // it is guarded no more
	GuardEnd time.Time // when its guard ends from now on; zero: that stays
}

// Change is the configuration that a node gets: the target of the pool to which it belongs, or, if it cannot start that,
// what it was given before; "": none.
type Change struct {
	Node
	Config     string
	ForceAfter time.Duration // after what time the node's drain deletes what budgets keep; 0: never
}

// Event is about a pool.
type Event struct {
	Reason, Message string
	Warning         bool
}

// The reasons of the events about a pool. The first is the machine-config operator's.
const (
	EventSetDesiredConfig = "SetDesiredConfig"
	EventNodeFailed       = "NodeFailed"
	EventNodeLate         = "NodeLate"
	EventStopped          = "RolloutStopped"
	EventReturns          = "RolloutReturns"
	EventArrived          = "RolloutComplete"
)

func (n *Node) desired() string { return n.Annotations[api.DesiredConfig] }
func (n *Node) current() string { return n.Annotations[api.CurrentConfig] }
func (n *Node) state() string   { return n.Annotations[api.StateOfNode] }
func (n *Node) asked() string   { return n.Annotations[api.Download] }
