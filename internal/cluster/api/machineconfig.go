package api

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// MachineConfig is what machines should have. Package authored reads its spec.
type MachineConfig struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec runtime.RawExtension `json:"spec"`
}

// MachineConfigList is a list of MachineConfigs.
type MachineConfigList = List[MachineConfig]

// ContainerRuntimeConfig is settings of CRI-O for the nodes of pools. Package containerruntime reads its spec.
type ContainerRuntimeConfig struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   runtime.RawExtension         `json:"spec"`
	Status ContainerRuntimeConfigStatus `json:"status,omitzero"`
}

// ContainerRuntimeConfigStatus says whether the settings were rendered.
type ContainerRuntimeConfigStatus struct {
	ObservedGeneration int64              `json:"observedGeneration,omitempty"`
	Conditions         []metav1.Condition `json:"conditions,omitempty"` // the newest last: ConfigSuccess or ConfigFailure
}

// The types of a ContainerRuntimeConfig's conditions, as the machine-config operator defines them.
const (
	ConfigSuccess = "Success"
	ConfigFailure = "Failure"
)

// ContainerRuntimeConfigList is a list of ContainerRuntimeConfigs.
type ContainerRuntimeConfigList = List[ContainerRuntimeConfig]

// DeepCopyObject implements runtime.Object.
func (c *MachineConfig) DeepCopyObject() runtime.Object { return clone(c) }

// DeepCopyObject implements runtime.Object.
func (c *ContainerRuntimeConfig) DeepCopyObject() runtime.Object { return clone(c) }
