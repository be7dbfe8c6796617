// Package schema validates documents that the programs write against the published schemas in
// docs/schema.
package schema

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"machine-pivot/internal/api"
)

// dir returns the directory of the schemas. Tests run in a directory of the checkout; the path of this file is of no use,
// because they are built with -trimpath.
func dir() (string, error) {
	at, err := os.Getwd()
	for ; err == nil; at = filepath.Dir(at) {
		if _, err := os.Stat(filepath.Join(at, "go.mod")); err == nil {
			return filepath.Join(at, "docs/schema"), nil
		} else if at == "/" {
			return "", fmt.Errorf("cannot find the schemas: %w", err)
		}
	}
	return "", err
}

// Validate validates a document against the schema of its kind. Properties that are not in the
// schema are errors here, because they are undocumented, although the published schemas allow them.
func Validate(kind api.Kind, document []byte) error {
	schema, err := compile(kind)
	if err != nil {
		return err
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(document))
	if err != nil {
		return fmt.Errorf("document %s: %w", kind, err)
	}
	return schema.Validate(value)
}

// ValidateLines validates each line of a text. There must be at least one.
func ValidateLines(kind api.Kind, text []byte) error {
	var failed error
	n := 0
	for line := range bytes.Lines(text) {
		n++
		if err := Validate(kind, line); err != nil {
			failed = errors.Join(failed, fmt.Errorf("line %d, %s: %w", n, line, err))
		}
	}
	if n == 0 {
		return fmt.Errorf("no document %s", kind)
	}
	return failed
}

func compile(kind api.Kind) (*jsonschema.Schema, error) {
	schemas, err := dir()
	if err != nil {
		return nil, err
	}
	name := string(kind) + ".json"
	text, err := os.ReadFile(filepath.Join(schemas, name))
	if err != nil {
		return nil, err
	}
	var value any
	if err := json.Unmarshal(text, &value); err != nil {
		return nil, fmt.Errorf("schema %s: %w", kind, err)
	}
	closeObjects(value)
	compiler := jsonschema.NewCompiler()
	compiler.DefaultDraft(jsonschema.Draft2020)
	compiler.AssertFormat()
	if err := compiler.AddResource(name, value); err != nil {
		return nil, fmt.Errorf("schema %s: %w", kind, err)
	}
	return compiler.Compile(name)
}

// closeObjects disallows additional properties in each object schema that has properties.
func closeObjects(schema any) {
	switch s := schema.(type) {
	case map[string]any:
		if _, more := s["additionalProperties"]; s["properties"] != nil && !more {
			s["additionalProperties"] = false
		}
		for _, below := range s {
			closeObjects(below)
		}
	case []any:
		for _, below := range s {
			closeObjects(below)
		}
	}
}
