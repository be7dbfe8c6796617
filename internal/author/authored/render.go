package authored

import (
	"bytes"
	"crypto/md5"
	"encoding/json"
	"fmt"

	yamlv2 "go.yaml.in/yaml/v2"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/machineconfig"
)

// renderedPrefix is the prefix of the names of rendered MachineConfigs.
const renderedPrefix = "rendered-"

// Render sets the name of a merged MachineConfig like the machine-config operator:
// rendered-ROLE-HASH, with a hash of the spec.
func (m *MachineConfig) Render(role string) error {
	sum, err := hash(m.Spec)
	if err != nil {
		return fault.New(fault.Internal, "cannot hash the MachineConfig of role %s: %w", role, err)
	}
	m.Name = renderedPrefix + role + "-" + sum
	return nil
}

// hash returns the MD5 of a salt and the spec as YAML. It is not for security: it distinguishes
// configurations, and must be the same as the operator's.
func hash(s machineconfig.Spec) (string, error) {
	text, err := marshalYAML(treeOf(s))
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%x", md5.Sum(append(salt(), text...))), nil
}

// salt is the operator's salt (pkg/controller/render/hash.go), which never changes.
func salt() []byte {
	return []byte{
		16, 124, 206, 228, 139, 56, 175, 175, 79, 229, 134, 118, 157, 154, 211, 110,
		25, 93, 47, 253, 172, 106, 37, 7, 174, 13, 160, 185, 110, 17, 87, 52,
		219, 131, 12, 206, 218, 141, 116, 135, 188, 181, 192, 151, 233, 62, 126, 165,
		64, 83, 179, 119, 15, 168, 208, 197, 146, 107, 58, 227, 133, 188, 238, 26,
		33, 26, 235, 202, 32, 173, 31, 234, 41, 144, 148, 79, 6, 206, 23, 22,
	}
}

// YAML returns the whole object in the format of kubectl.
func (m *MachineConfig) YAML() ([]byte, error) { return marshalYAML(m) }

// marshalYAML writes v's JSON form as YAML, with sorted members. It uses version 2 of the YAML
// library, like the operator: version 3 breaks and indents lines differently, which would change
// the hash.
func marshalYAML(v any) ([]byte, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	var tree any
	if err := d.Decode(&tree); err != nil {
		return nil, err
	}
	return yamlv2.Marshal(yamlNumbers(tree))
}

// yamlNumbers converts json.Number values to numbers; YAML would quote their text.
func yamlNumbers(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for name, member := range v {
			v[name] = yamlNumbers(member)
		}
	case []any:
		for i, element := range v {
			v[i] = yamlNumbers(element)
		}
	case json.Number:
		if i, err := v.Int64(); err == nil {
			return i
		}
		if f, err := v.Float64(); err == nil {
			return f
		}
	}
	return v
}
