package ignition

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	"machine-pivot/internal/machineconfig/document"
	"machine-pivot/internal/problem"
)

// Mistyped reports each value of a config with another type than its member in the type of, at its own path and in the
// words of the document. encoding/json reports the first one only, without the index in a list, and names types of Go.
func Mistyped(raw []byte, of reflect.Type) problem.Report {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var value any
	if d.Decode(&value) != nil {
		return nil // the parser reports the error
	}
	var found mistyped
	found.compare(value, of)
	return found.problems
}

// mistyped collects the problems at the steps that lead to the value that is compared.
type mistyped struct {
	steps    []any
	problems problem.Report
}

// compare compares a value with a type. null is of each type.
func (m *mistyped) compare(value any, t reflect.Type) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if value == nil || t.Kind() == reflect.Interface {
		return
	}
	switch v := value.(type) {
	case map[string]any:
		if t.Kind() == reflect.Struct {
			m.members(v, t)
			return
		}
	case []any:
		if t.Kind() == reflect.Slice {
			for i, element := range v {
				m.below(i, element, t.Elem())
			}
			return
		}
	case string:
		if t.Kind() == reflect.String {
			return
		}
	case bool:
		if t.Kind() == reflect.Bool {
			return
		}
	case json.Number:
		if _, err := v.Int64(); err == nil && t.Kind() == reflect.Int {
			return
		}
	}
	m.problems.Fail(document.PathOf(m.steps...), "it is %s, not %s", givenType(value), wantedType(t))
}

// below compares a value in the one that is compared.
func (m *mistyped) below(step, value any, t reflect.Type) {
	m.steps = append(m.steps, step)
	m.compare(value, t)
	m.steps = m.steps[:len(m.steps)-1]
}

// members compares the members of an object with the fields of a struct, also of structs in it that are embedded.
func (m *mistyped) members(object map[string]any, t reflect.Type) {
	for i := range t.NumField() {
		field := t.Field(i)
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if field.Anonymous && name == "" {
			m.members(object, field.Type)
			continue
		}
		for given, value := range object {
			if strings.EqualFold(given, name) {
				m.below(given, value, field.Type)
			}
		}
	}
}

// givenType names the type of a value. A number is named with its value, which may only be too large, or not whole.
func givenType(value any) string {
	switch v := value.(type) {
	case map[string]any:
		return "an object"
	case []any:
		return "an array"
	case string:
		return "a string"
	case bool:
		return fmt.Sprint(v)
	case json.Number:
		return "the number " + v.String()
	}
	return "null"
}

func wantedType(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Struct:
		return "an object"
	case reflect.Slice:
		return "an array"
	case reflect.Bool:
		return "true or false"
	case reflect.Int:
		return "a whole number"
	}
	return "a string"
}
