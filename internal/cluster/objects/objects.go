// Package objects has the types of a fleet's objects as its controllers read and write them: MachineConfigs and their
// pools in OpenShift's shape, and pivot's own. Their schemas are in deploy/base/crds. A type has the fields that pivot
// uses; an update must therefore be a patch, or else it would remove the other ones.
package objects

import (
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"machine-pivot/internal/cluster/api"
)

// Operator returns the group and version of the objects that have OpenShift's shape.
func Operator() schema.GroupVersion {
	return schema.GroupVersion{Group: api.OperatorGroup, Version: api.OperatorVersion}
}

// Own is that of pivot's own objects.
func Own() schema.GroupVersion { return schema.GroupVersion{Group: api.Group, Version: api.Version} }

// AddTo adds the types to a scheme.
func AddTo(s *runtime.Scheme) {
	s.AddKnownTypes(Operator(),
		&MachineConfig{}, &MachineConfigList{}, &MachineConfigPool{}, &MachineConfigPoolList{},
		&ContainerRuntimeConfig{}, &ContainerRuntimeConfigList{})
	s.AddKnownTypes(Own(), &NodeSystem{}, &NodeSystemList{}, &PoolRollout{}, &PoolRolloutList{})
	metav1.AddToGroupVersion(s, Operator())
	metav1.AddToGroupVersion(s, Own())
}

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
