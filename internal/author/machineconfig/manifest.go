package machineconfig

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"

	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/machineconfig/spec"
	"machine-pivot/internal/problem"
)

// manifestVersion is the Ignition version of a manifest: the oldest that has all
// that it needs, so that every machine and cluster of the last years reads it.
const manifestVersion = "3.2.0"

// Manifest is a MachineConfig that puts files onto the machines of a role, owned
// by root, and asks for nothing else. It is written without the members that it
// does not need, as people write one by hand.
type Manifest struct {
	Name  string
	Role  string
	Files []hostfiles.File
}

// Check reports whether name and role are such as a cluster takes.
func (m Manifest) Check() error {
	for what, name := range map[string]string{"name": m.Name, "role": m.Role} {
		if len(name) > 63 && what == "role" || len(name) > 253 || !objectName.MatchString(name) {
			return fmt.Errorf("cannot use the %s %s: lower case letters, digits, - and . only", what, problem.Quoted(name))
		}
	}
	return nil
}

// YAML is the manifest as kubectl writes it: members sorted, lists not indented.
func (m Manifest) YAML() ([]byte, error) { return marshalYAML(m.tree()) }

// JSON is the manifest, indented.
func (m Manifest) JSON() ([]byte, error) { return indentedJSON(m.tree()) }

// Ignition is the manifest's Ignition config alone, as JSON.
func (m Manifest) Ignition() ([]byte, error) { return indentedJSON(m.config()) }

func indentedJSON(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	err := e.Encode(v)
	return b.Bytes(), err
}

type object = map[string]any

func (m Manifest) tree() object {
	return object{
		"apiVersion": spec.APIVersion,
		"kind":       spec.Kind,
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
