package api

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// NodeSystem is the state of a node's operating system, as the node's agent writes it. It has the name of
// its node.
type NodeSystem struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Status NodeSystemStatus `json:"status,omitzero"`
}

// NodeSystemList is a list of NodeSystems.
type NodeSystemList = List[NodeSystem]

// DeepCopyObject implements runtime.Object.
func (s *NodeSystem) DeepCopyObject() runtime.Object { return clone(s) }
