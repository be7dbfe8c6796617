// Package machineconfig knows MachineConfigs as those have them who write them: of many
// it makes the one that a machine gets: decode, merge, name. Whatever is wrong is
// reported at once.
//
// Sources: the MachineConfig type of the OpenShift API, the machine-config operator's
// way to merge and name, and Ignition's own parser and validation for what is in
// spec.config. The package does no I/O.
package machineconfig

import (
	"bytes"
	"encoding/json"
	"strings"

	"machine-pivot/internal/machineconfig/ignition"
	"machine-pivot/internal/machineconfig/spec"
	"machine-pivot/internal/pinning"
	"machine-pivot/kargs"
)

// RoleLabel is the label that names a MachineConfig's role.
const RoleLabel = "machineconfiguration.openshift.io/role"

// thisAPI is what an object with unknown members is not of.
const thisAPI = "a MachineConfig of the API version v1"

// MachineConfig is a MachineConfig as an operator writes it.
type MachineConfig struct {
	Name        string
	Labels      map[string]string
	Annotations map[string]string
	Spec        Spec

	file string // it was read from
}

// File is the file that the MachineConfig was read from; "" if it was made.
func (m *MachineConfig) File() string { return m.file }

// Role is the role that the MachineConfig is for; "" if it has no role label.
func (m *MachineConfig) Role() string { return m.Labels[RoleLabel] }

// Spec is what a MachineConfig asks for.
type Spec struct {
	OSImageURL      string
	ExtensionsImage string           // spec.baseOSExtensionsContainerImage
	Config          *ignition.Config // nil: none
	KernelArguments []string         // entries as given, each may hold several arguments
	Extensions      []string
	FIPS            bool
	KernelType      string // "", default, realtime or 64k-pages
}

// Rules are what MachineConfigs are judged by, beyond what holds always.
type Rules struct {
	KernelArguments kargs.Policy
	CheckImage      func(image string) error // whether a reference can be used; nil: by the grammar of registries
	CPUs            pinning.CPUSet           // of the machines; none: not known, not checked
}

// MarshalJSON writes the whole object. All seven members of spec are there, as
// in what a cluster gives out: readers insist on some of them.
func (m *MachineConfig) MarshalJSON() ([]byte, error) {
	return marshalPlain(struct {
		Kind       string   `json:"kind"`
		APIVersion string   `json:"apiVersion"`
		Metadata   metadata `json:"metadata"`
		Spec       any      `json:"spec"`
	}{spec.Kind, spec.APIVersion, metadata{m.Name, m.Labels, m.Annotations}, m.Spec.tree()})
}

// MarshalList writes MachineConfigs in JSON, indented: one as itself, several or
// none as a list.
func MarshalList(all []*MachineConfig) ([]byte, error) {
	var value any = struct {
		Kind       string           `json:"kind"`
		APIVersion string           `json:"apiVersion"`
		Items      []*MachineConfig `json:"items"`
	}{"List", "v1", append([]*MachineConfig{}, all...)}
	if len(all) == 1 {
		value = all[0]
	}
	line, err := marshalPlain(value)
	if err != nil {
		return nil, err
	}
	var text bytes.Buffer
	err = json.Indent(&text, append(line, '\n'), "", "  ")
	return text.Bytes(), err
}

type metadata struct {
	Name        string            `json:"name"`
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// specTree is a spec to be written. Config is absent if the MachineConfig has none.
type specTree struct {
	OSImageURL      string   `json:"osImageURL"`
	ExtensionsImage string   `json:"baseOSExtensionsContainerImage"`
	Config          any      `json:"config,omitempty"`
	KernelArguments []string `json:"kernelArguments"`
	Extensions      []string `json:"extensions"`
	FIPS            bool     `json:"fips"`
	KernelType      string   `json:"kernelType"`
}

// tree is the spec to be written.
func (s Spec) tree() specTree {
	t := specTree{s.OSImageURL, s.ExtensionsImage, nil, s.KernelArguments, s.Extensions, s.FIPS, s.KernelType}
	if s.Config != nil {
		t.Config = ignition.Tree(*s.Config)
	}
	return t
}

// marshalPlain writes JSON in one line, without escapes meant for HTML.
func marshalPlain(v any) ([]byte, error) {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return []byte(strings.TrimSuffix(b.String(), "\n")), err
}
