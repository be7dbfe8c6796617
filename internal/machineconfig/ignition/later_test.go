package ignition

import (
	"reflect"
	"strings"
	"testing"

	v36 "github.com/coreos/ignition/v2/config/v3_6/types"
)

// TestLowered: the types of 3.6 have the members of Config, on which lowered relies, and nothing of a config is lost.
func TestLowered(t *testing.T) {
	if a, b := shapeOf(reflect.TypeFor[v36.Config]()), shapeOf(reflect.TypeFor[Config]()); a != b {
		t.Errorf("the types of 3.6 are\n%s\nof %s\n%s", a, Version, b)
	}
}

// shapeOf describes a type by the names and types of what is in it.
func shapeOf(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice:
		return t.Kind().String() + " " + shapeOf(t.Elem())
	case reflect.Struct:
		var b strings.Builder
		for i := range t.NumField() {
			b.WriteString(t.Field(i).Name + " " + string(t.Field(i).Tag) + " " + shapeOf(t.Field(i).Type) + "\n")
		}
		return "{" + b.String() + "}"
	}
	return t.Kind().String()
}

// TestLater: a config of version 3.6 may have what is new in it. Rendered as 3.6 it stays as it is; as an earlier version
// what that cannot have is an error, or was a warning.
func TestLater(t *testing.T) {
	const special = `{"ignition":{"version":"3.6.0"},"storage":{"directories":[{"path":"/d","mode":1023}],"files":[{"path":"/a","mode":2541}]}}`
	config, problems := Parse([]byte(special))
	if problems.Failed() || len(problems) != 2 || problems[0].Path != ".storage.files[0].mode" || problems[1].Path != ".storage.directories[0].mode" {
		t.Errorf("problems %v, want a warning of each mode", problems)
	}
	if config.Ignition.Version != Version || *config.Storage.Files[0].Mode != 0o4755 || *config.Storage.Directories[0].Mode != 0o1777 {
		t.Errorf("config %+v", config)
	}
	raw, problems := Down(config, "3.6.0")
	if problems.Failed() || !strings.Contains(string(raw), `"version":"3.6.0"`) || !strings.Contains(string(raw), `"mode":2541`) {
		t.Errorf("%s, %v", raw, problems)
	}

	const pin = `{"ignition":{"version":"3.6.0"},"storage":{"luks":[{"name":"a","device":"/dev/a","clevis":{"custom":{"pin":"own","config":"{}"}}}]}}`
	if config, problems = Parse([]byte(pin)); len(problems) > 0 {
		t.Errorf("problems %v", problems)
	}
	if raw, problems := Down(config, "3.6.0"); problems.Failed() {
		t.Errorf("%s, %v", raw, problems)
	}
	if raw, problems := Down(config, Version); !problems.Failed() || !strings.Contains(problems.String(), "clevis.custom.pin") {
		t.Errorf("%s, %v; want an error about the pin", raw, problems)
	}
	if _, problems := Parse([]byte(strings.Replace(pin, "3.6.0", "3.5.0", 1))); !problems.Failed() {
		t.Error("3.5.0 has such a pin")
	}
	if _, problems := Parse([]byte(strings.Replace(special, "3.6.0", "3.7.0", 1))); !problems.Failed() || !strings.Contains(problems.String(), "3.0.0 to 3.6.0") {
		t.Errorf("3.7.0: %v", problems)
	}
}
