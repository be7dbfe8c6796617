package api

import (
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Operator returns the group and version of the objects that have OpenShift's shape.
func Operator() schema.GroupVersion {
	return schema.GroupVersion{Group: OperatorGroup, Version: OperatorVersion}
}

// Own is that of pivot's own objects.
func Own() schema.GroupVersion { return schema.GroupVersion{Group: Group, Version: Version} }

// AddTo adds the types to a scheme.
func AddTo(s *runtime.Scheme) {
	add := func(to schema.GroupVersion, kind string, object, list runtime.Object) {
		s.AddKnownTypeWithName(to.WithKind(kind), object)
		s.AddKnownTypeWithName(to.WithKind(kind+"List"), list)
	}
	add(Operator(), "MachineConfig", &MachineConfig{}, &MachineConfigList{})
	add(Operator(), "MachineConfigPool", &MachineConfigPool{}, &MachineConfigPoolList{})
	add(Operator(), "ContainerRuntimeConfig", &ContainerRuntimeConfig{}, &ContainerRuntimeConfigList{})
	add(Own(), "NodeSystem", &NodeSystem{}, &NodeSystemList{})
	add(Own(), "PoolRollout", &PoolRollout{}, &PoolRolloutList{})
	metav1.AddToGroupVersion(s, Operator())
	metav1.AddToGroupVersion(s, Own())
}

// List is a list of objects.
type List[T any] struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []T `json:"items"`
}

// DeepCopyObject implements runtime.Object.
func (l *List[T]) DeepCopyObject() runtime.Object { return clone(l) }

// clone returns a copy of an object that shares no memory with it.
func clone[T any](of *T) *T {
	text, err := json.Marshal(of)
	if err != nil {
		panic(fmt.Sprintf("an object cannot be written as JSON: %v", err)) // each was read from JSON
	}
	out := new(T)
	if err := json.Unmarshal(text, out); err != nil {
		panic(fmt.Sprintf("an object cannot be read as JSON: %v", err))
	}
	return out
}
