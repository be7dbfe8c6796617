// Package schema holds documents that the programs write against the published schemas
// in docs/schema.
package schema

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"machine-pivot/internal/api"
)

// Dir is where the schemas are.
func Dir() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(file), "../../docs/schema")
}

// Validate holds a document against the schema of its kind. A member that the schema
// does not know is an error here, as it would be one that nobody has documented; for
// the schemas' readers it is not.
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

// ValidateLines is Validate for each line of a text, of which there must be one.
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
	name := string(kind) + ".json"
	text, err := os.ReadFile(filepath.Join(Dir(), name))
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

// closeObjects lets each schema of an object with properties know no others.
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
