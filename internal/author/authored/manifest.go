package authored

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"

	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/machineconfig"
	"machine-pivot/internal/problem"
)

// manifestVersion is the Ignition version of a manifest: the oldest one that suffices, so that all
// machines and clusters of recent years can read it.
const manifestVersion = "3.2.0"

// Manifest is a MachineConfig that only writes files, owned by root, to the machines of a role. It
// is written without unneeded members, like a handwritten one.
type Manifest struct {
	Name  string
	Role  string
	Files []hostfiles.File
}

// Check returns an error unless a cluster accepts the name and the role.
func (m Manifest) Check() error {
	for what, name := range map[string]string{"name": m.Name, "role": m.Role} {
		if len(name) > 63 && what == "role" || len(name) > 253 || !objectName.MatchString(name) {
			return fmt.Errorf("cannot use the %s %s: lower case letters, digits, - and . only", what, problem.Quoted(name))
		}
	}
	return nil
}

// YAML returns the manifest in the format of kubectl: members sorted, lists not indented.
func (m Manifest) YAML() ([]byte, error) { return marshalYAML(m.tree()) }

// JSON returns the manifest as indented JSON.
func (m Manifest) JSON() ([]byte, error) { return IndentedJSON(m.tree()) }

// Ignition returns only the manifest's Ignition config, as JSON.
func (m Manifest) Ignition() ([]byte, error) { return IndentedJSON(m.config()) }

// IndentedJSON writes JSON for people: on several lines, without HTML escapes.
func IndentedJSON(v any) ([]byte, error) { return encodeJSON(v, "  ") }

func encodeJSON(v any, indent string) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", indent)
	err := e.Encode(v)
	return b.Bytes(), err
}

type object = map[string]any

func (m Manifest) tree() object {
	return object{
		"apiVersion": machineconfig.APIVersion,
		"kind":       machineconfig.Kind,
		"metadata":   object{"labels": object{RoleLabel: m.Role}, "name": m.Name},
		"spec":       object{"config": m.config()},
	}
}

func (m Manifest) config() object {
	files := make([]object, len(m.Files))
	for i, f := range m.Files {
		files[i] = object{
			"contents":  object{"source": "data:text/plain;charset=utf-8;base64," + base64.StdEncoding.EncodeToString(f.Content)},
			"mode":      int(f.Mode),
			"overwrite": true,
			"path":      f.Path,
			"user":      object{"name": "root"},
		}
	}
	config := object{"ignition": object{"version": manifestVersion}}
	if len(files) > 0 {
		config["storage"] = object{"files": files}
	}
	return config
}
