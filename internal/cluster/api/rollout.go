package api

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// PoolRollout is what OpenShift's MachineConfigPool has no field for: how carefully the nodes of the pool of that name
// get another MachineConfig, and how far that is. The spec is an administrator's, the status the controller's, which
// creates an object without a spec for a pool that has none.
type PoolRollout struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   PoolRolloutSpec   `json:"spec,omitzero"`
	Status PoolRolloutStatus `json:"status,omitzero"`
}

// PoolRolloutSpec is how carefully a pool's nodes get another MachineConfig.
type PoolRolloutSpec struct {
	// After names pools that must have arrived at their own configuration before a node of this one begins.
	After []string `json:"after,omitempty"`
	// Window is when nodes may begin, as internal/window defines it: "Sat,Sun 22:00-04:00 UTC". A node that has begun
	// continues after its end. Empty: always.
	Window string `json:"window,omitempty"`
	// Canary is how many nodes get a new configuration first. The others wait until each of these has it,
	// and has been healthy for Soak.
	Canary int32           `json:"canary,omitempty"`
	Soak   metav1.Duration `json:"soak,omitzero"`
	// Checks are the pool's own conditions of health, beside those that always hold.
	Checks PoolChecks `json:"checks,omitzero"`
	// StopAfter is how many nodes may fail until no further one begins. 0: 1.
	StopAfter int32 `json:"stopAfter,omitempty"`
	// ReturnToLastGood gives the last configuration that all nodes had to those that have the failing one,
	// when the rollout has stopped because of StopAfter.
	ReturnToLastGood bool `json:"returnToLastGood,omitempty"`
	// MissingAfter is after what time a node that reboots and does not return is named as missing, and counts
	// as failed. 0: 30 minutes.
	MissingAfter metav1.Duration `json:"missingAfter,omitzero"`
	// WorkingLimit is how long a node may be in change until it is named: in Waiting, in the condition NodeDegraded and by
	// an event. 0: 2 hours. PassSlotOn then gives its slot to the next node, so that one more than maxUnavailable may be
	// disturbed for each such node. Slots of the pool master are never passed on.
	WorkingLimit metav1.Duration `json:"workingLimit,omitzero"`
	PassSlotOn   bool            `json:"passSlotOn,omitempty"`
	// Drain is about the drains of the pool's nodes.
	Drain PoolDrain `json:"drain,omitzero"`
	// Hooks are commands of the administrator, for each node of the pool.
	Hooks PoolHooks `json:"hooks,omitzero"`
	// Adopt takes in the nodes of the pool that were never given a configuration: each is given that of the pool, by a
	// slot, as all others are. Without it they are left alone, and the pool is not updated.
	Adopt bool `json:"adopt,omitempty"`
	// ParallelDownloads is how many nodes at a time download a new configuration before their turn: a number, or a
	// percentage of the pool. Neither a paused pool nor a closed window stops them. Without it: none.
	ParallelDownloads *intstr.IntOrString `json:"parallelDownloads,omitempty"`
	// NodeSelector has the controllers make the MachineConfigPool of the same name, with these nodes, MaxUnavailable, and
	// the MachineConfigs of its role. nil: the pool is somebody else's.
	NodeSelector   *metav1.LabelSelector `json:"nodeSelector,omitempty"`
	MaxUnavailable *intstr.IntOrString   `json:"maxUnavailable,omitempty"`
	// Image is the operating system of the pool's nodes, and KernelArguments are arguments that they get. The controllers
	// write both into a MachineConfig of the pool.
	Image           *PoolImage `json:"image,omitempty"`
	KernelArguments []string   `json:"kernelArguments,omitempty"`
}

// PoolImage is an image of an operating system, by a tag that is followed.
type PoolImage struct {
	Ref string `json:"ref"` // HOST/NAME:TAG
	// Every is how often the tag is resolved, while no rollout is under way. 0: 10 minutes.
	Every metav1.Duration `json:"every,omitzero"`
	// PullSecretRef names a Secret in the controllers' namespace. nil: the registry needs none.
	PullSecretRef *SecretReference `json:"pullSecretRef,omitempty"`
	// Policy is who judges the image's signature: PolicyNodes, also if it is empty.
	Policy string `json:"policy,omitempty"`
}

// PolicyNodes is the policy that each node judges the image by its own signature policy, before it is drained.
const PolicyNodes = "nodes"

// SecretReference names a Secret of the type kubernetes.io/dockerconfigjson.
type SecretReference struct {
	Name string `json:"name"`
}

// PoolDrain is how the nodes of a pool are drained.
type PoolDrain struct {
	// ForceAfter is after what time a drain deletes the pods that a budget keeps from being evicted. 0: never.
	ForceAfter metav1.Duration `json:"forceAfter,omitzero"`
}

// PoolHooks are Jobs that are run for each node of a pool. Each names a suspended Job, of which a copy is made that has the
// node's name in the environment.
type PoolHooks struct {
	BeforeDrain *HookReference `json:"beforeDrain,omitempty"` // before a node gets another configuration
	AfterProof  *HookReference `json:"afterProof,omitempty"`  // after the proof, before the slot is given back
	// Timeout is how long each may take. 0: 10 minutes.
	Timeout metav1.Duration `json:"timeout,omitzero"`
}

// HookReference names a suspended Job.
type HookReference struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

// PoolChecks are conditions of health. A node counts as unavailable until they hold for it, and no further
// node begins until all hold.
type PoolChecks struct {
	// Node is a CEL expression over "node", a Node object, that must be true for each node that has been
	// changed. Empty: none.
	Node string `json:"node,omitempty"`
	// Workloads must have all their replicas available.
	Workloads []WorkloadReference `json:"workloads,omitempty"`
}

// WorkloadReference names a Deployment or a DaemonSet.
type WorkloadReference struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

// PoolRolloutStatus is how far a rollout is.
type PoolRolloutStatus struct {
	// Target is the configuration that the nodes are given: that of the pool, or LastGood on the way back.
	Target string `json:"target,omitempty"`
	// LastGood is the last configuration that each node of the pool had.
	LastGood string `json:"lastGood,omitempty"`
	// Taken are the nodes that may be unavailable because of the controller: each has been given a
	// configuration, or will be now, and has not become healthy with it. A node is added before its
	// annotation is written, by an update that fails if the object has changed. So two controllers never
	// count differently.
	Taken []string `json:"taken,omitempty"`
	// Down are those of Taken that were not Ready when they were given what they have, and have not been since. That
	// they do not come back is no failure of Target.
	Down []string `json:"down,omitempty"`
	// Begun are the nodes that were given Target by a slot, and are not healthy with it: since when, and whether that is
	// longer than the spec's WorkingLimit.
	Begun []BegunNode `json:"begun,omitempty"`
	// Hooks are the Jobs of nodes with a slot that have not ended, and those that have failed.
	Hooks []HookRun `json:"hooks,omitempty"`
	// LongestAbsence is the longest time for which a node with a slot was not Ready.
	LongestAbsence metav1.Duration `json:"longestAbsence,omitzero"`
	// Downloads are the nodes that were asked to download Target before their turn, and have neither done so nor
	// been given it. A node is added before it is asked, and removed after the request was taken back, by the
	// rules of Taken. Those without a Failure count.
	Downloads []NodeDownload `json:"downloads,omitempty"`
	// Round counts the updates after which nodes were given a configuration, or asked for a download. So each of them is another version of
	// the object, and whoever has read an older one cannot give a slot back.
	Round int64 `json:"round,omitempty"`
	// Failed are the first nodes on which Target has failed, or which are missing, and FailedCount is the number of all
	// of them. While Target is LastGood because GivenUp has failed, those on which that has failed stay named.
	Failed      []FailedNode `json:"failed,omitempty"`
	FailedCount int32        `json:"failedCount,omitempty"`
	// GivenUp is the configuration with the failures after which the rollout has stopped, or returned.
	GivenUp string `json:"givenUp,omitempty"`
	// CanariesSince is since when all canaries have been healthy with Target.
	CanariesSince *metav1.Time `json:"canariesSince,omitempty"`
	// Conditions are the RolloutComplete and the others.
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// Ended is the configuration of the pool, if its rollout has ended: each node that can begin has it, or it has failed.
	Ended string `json:"ended,omitempty"`
	// Image is what the tag of the spec was resolved to. nil: nothing yet.
	Image *ResolvedImage `json:"image,omitempty"`
	// Problem is why the pool or the MachineConfig is not as the spec wants. Empty: it is.
	Problem string `json:"problem,omitempty"`
	// Waiting is what the rollout waits for, in one sentence. Empty: for nothing.
	Waiting string `json:"waiting,omitempty"`
}

// ResolvedImage is an image to which a tag was resolved.
type ResolvedImage struct {
	Ref     string      `json:"ref"`               // that was asked for last
	Image   string      `json:"image,omitempty"`   // that the nodes are given, with its digest
	Checked metav1.Time `json:"checked"`           // when the registry was asked last
	Failure string      `json:"failure,omitempty"` // of that; "": none
}

// FailedNode is a node on which a configuration has failed.
type FailedNode struct {
	Name   string `json:"name"`
	Reason string `json:"reason"`
}

// HookRun is a Job for a node.
type HookRun struct {
	Name    string      `json:"name"`   // of the node
	When    string      `json:"when"`   // BeforeDrain or AfterProof
	Config  string      `json:"config"` // that the node gets
	Job     string      `json:"job"`    // its namespace and name
	Since   metav1.Time `json:"since"`
	Done    bool        `json:"done,omitempty"`
	Failure string      `json:"failure,omitempty"` // whoever deletes the Job has it run again
}

// The types of the conditions of a PoolRollout.
const (
	RolloutComplete    = "Complete"    // nothing is waited for: each node has the pool's configuration
	RolloutProgressing = "Progressing" // nothing lasting keeps nodes from beginning
	RolloutDegraded    = "Degraded"    // nodes have failed, or settings are wrong
)

// When a HookRun is.
const (
	BeforeDrain = "beforeDrain"
	AfterProof  = "afterProof"
)

// BegunNode is a node in change.
type BegunNode struct {
	Name  string      `json:"name"`
	Since metav1.Time `json:"since"`
	Late  bool        `json:"late,omitempty"`
	// From is what the controllers had given the node before. Empty: nothing, or that is not known.
	From string `json:"from,omitempty"`
}

// NodeDownload is a download before a node's turn.
type NodeDownload struct {
	Name    string      `json:"name"`
	Since   metav1.Time `json:"since"`             // it was asked for, or has failed
	Failure string      `json:"failure,omitempty"` // why it has failed
}

// PoolRolloutList is a list of rollouts.
type PoolRolloutList = List[PoolRollout]

// DeepCopyObject implements runtime.Object.
func (r *PoolRollout) DeepCopyObject() runtime.Object { return clone(r) }
