// Package authored reads, decodes, merges and names MachineConfigs as their authors write them, and
// renders the one that a machine gets. It reports all problems at once.
//
// Sources: the MachineConfig type of the OpenShift API, the machine-config operator's code for
// merging and naming, and Ignition's own parser and validation for spec.config. Only Read and Files do I/O.
package authored

import (
	"bytes"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/machineconfig"
	"machine-pivot/internal/machineconfig/document"
	"machine-pivot/internal/machineconfig/ignition"
	"machine-pivot/internal/pinning"
	"machine-pivot/kargs"
)

// RoleLabel is the label that names a MachineConfig's role.
const RoleLabel = "machineconfiguration.openshift.io/role"

// MachineConfig is a MachineConfig as its author writes it.
type MachineConfig struct {
	Name        string
	Labels      map[string]string
	Annotations map[string]string
	Spec        machineconfig.Spec

	file       string // the file that it was read from
	deniesFIPS bool   // it has fips: false, and its author has chosen that
}

// File returns the file that the MachineConfig was read from; "" if it was not read from a file.
func (m *MachineConfig) File() string { return m.file }

// generated reports whether a controller has made the MachineConfig.
func (m *MachineConfig) generated() bool {
	_, is := m.Annotations[machineconfig.GeneratedBy]
	return is
}

// Role returns the role of the MachineConfig; "" if it has no role label.
func (m *MachineConfig) Role() string { return m.Labels[RoleLabel] }

// AddFiles adds the inline contents of those of its files for which wanted returns true, by path.
func (m *MachineConfig) AddFiles(to map[string][]byte, wanted func(path string) bool) error {
	if m.Spec.Config == nil {
		return nil
	}
	room := NewRoom()
	for _, file := range m.Spec.Config.Storage.Files {
		if !wanted(file.Path) {
			continue
		}
		content, err := ignition.Content(file.Contents, room)
		if err != nil {
			return fault.New(fault.BadInput, "cannot read file %s: %w", file.Path, err)
		}
		to[file.Path] = content
	}
	return nil
}

// Rules are the configurable rules for MachineConfigs.
type Rules struct {
	KernelArguments kargs.Policy
	CPUs            pinning.Machine // CPUs of the machines
	// Other takes an object of another kind, and reports whether it has; nil: each of them is a mistake.
	Other func(n document.Node) bool
	Room  *ignition.Room // for the contents in all files that are read; nil: see NewRoom, for each MachineConfig
}

// Host returns what is known of the machines.
func (r Rules) Host() machineconfig.Host {
	return machineconfig.Host{CPUs: r.CPUs, Policy: &r.KernelArguments}
}

// MarshalJSON writes the whole object. It always writes all seven members of spec, like a cluster
// does, because some readers require them.
func (m *MachineConfig) MarshalJSON() ([]byte, error) {
	return marshalPlain(struct {
		Kind       string   `json:"kind"`
		APIVersion string   `json:"apiVersion"`
		Metadata   metadata `json:"metadata"`
		Spec       any      `json:"spec"`
	}{machineconfig.Kind, machineconfig.APIVersion, metadata{m.Name, m.Labels, m.Annotations}, treeOf(m.Spec)})
}

// SpecJSON writes the spec as MarshalJSON does.
func (m *MachineConfig) SpecJSON() ([]byte, error) { return marshalPlain(treeOf(m.Spec)) }

// MarshalList writes MachineConfigs as indented JSON: one as the object itself, otherwise as a
// List.
func MarshalList(all []*MachineConfig) ([]byte, error) {
	var value any = struct {
		Kind       string           `json:"kind"`
		APIVersion string           `json:"apiVersion"`
		Items      []*MachineConfig `json:"items"`
	}{"List", "v1", append([]*MachineConfig{}, all...)}
	if len(all) == 1 {
		value = all[0]
	}
	return IndentedJSON(value)
}

type metadata struct {
	Name        string            `json:"name"`
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// specTree is the JSON form of a spec. config is omitted if there is none.
type specTree struct {
	OSImageURL      string   `json:"osImageURL"`
	ExtensionsImage string   `json:"baseOSExtensionsContainerImage"`
	Config          any      `json:"config,omitempty"`
	KernelArguments []string `json:"kernelArguments"`
	Extensions      []string `json:"extensions"`
	FIPS            bool     `json:"fips"`
	KernelType      string   `json:"kernelType"`
}

// treeOf returns the JSON form of a spec.
func treeOf(s machineconfig.Spec) specTree {
	t := specTree{s.OSImageURL.String(), s.ExtensionsImage.String(), nil, s.KernelArguments, s.Extensions, s.FIPS, s.KernelType}
	if s.Config != nil {
		t.Config = ignition.Tree(*s.Config)
	}
	return t
}

// marshalPlain writes JSON in one line, without HTML escapes.
func marshalPlain(v any) ([]byte, error) {
	text, err := encodeJSON(v, "")
	return bytes.TrimSuffix(text, []byte("\n")), err
}
