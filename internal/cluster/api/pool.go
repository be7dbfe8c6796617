package api

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// MachineConfigPool is a set of nodes that get the same MachineConfig. Its name is the role of its nodes.
type MachineConfigPool struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   MachineConfigPoolSpec   `json:"spec"`
	Status MachineConfigPoolStatus `json:"status,omitzero"`
}

// MachineConfigPoolSpec says which MachineConfigs are merged, for which nodes, and how they get the result.
type MachineConfigPoolSpec struct {
	MachineConfigSelector *metav1.LabelSelector `json:"machineConfigSelector,omitempty"`
	NodeSelector          *metav1.LabelSelector `json:"nodeSelector,omitempty"`
	// Paused stops the rollout: no further node is begun.
	Paused bool `json:"paused,omitempty"`
	// MaxUnavailable is how many nodes may be unavailable at a time: a number, or a percentage of the pool,
	// rounded down but at least 1. Without it: 1.
	MaxUnavailable *intstr.IntOrString `json:"maxUnavailable,omitempty"`
	// Configuration is the rendered MachineConfig that the nodes should have. The renderer writes it.
	Configuration PoolConfiguration `json:"configuration,omitzero"`
}

// PoolConfiguration names a rendered MachineConfig, and those that were merged into it.
type PoolConfiguration struct {
	APIVersion string            `json:"apiVersion,omitempty"`
	Kind       string            `json:"kind,omitempty"`
	Name       string            `json:"name,omitempty"`
	Source     []ObjectReference `json:"source,omitempty"`
}

// ObjectReference names an object.
type ObjectReference struct {
	APIVersion string `json:"apiVersion,omitempty"`
	Kind       string `json:"kind,omitempty"`
	Name       string `json:"name,omitempty"`
}

// MachineConfigPoolStatus is how far the rollout is.
type MachineConfigPoolStatus struct {
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Configuration is the one that all nodes have had last.
	Configuration           PoolConfiguration  `json:"configuration,omitzero"`
	MachineCount            int32              `json:"machineCount"`
	UpdatedMachineCount     int32              `json:"updatedMachineCount"` // have the configuration, and are not degraded
	ReadyMachineCount       int32              `json:"readyMachineCount"`   // the same, and take pods
	UnavailableMachineCount int32              `json:"unavailableMachineCount"`
	DegradedMachineCount    int32              `json:"degradedMachineCount"`
	Conditions              []metav1.Condition `json:"conditions,omitempty"`
}

// The types of a pool's conditions, as the machine-config operator defines them.
const (
	PoolUpdated        = "Updated"        // each node has the configuration
	PoolUpdating       = "Updating"       // the message says what is waited for, in one sentence
	PoolDegraded       = "Degraded"       // PoolNodeDegraded or PoolRenderDegraded
	PoolNodeDegraded   = "NodeDegraded"   // nodes have failed; the message names them
	PoolRenderDegraded = "RenderDegraded" // the MachineConfigs cannot be merged; the message has all problems
)

// MachineConfigPoolList is a list of pools.
type MachineConfigPoolList = List[MachineConfigPool]

// DeepCopyObject implements runtime.Object.
func (p *MachineConfigPool) DeepCopyObject() runtime.Object { return clone(p) }
