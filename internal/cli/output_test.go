package cli_test

import (
	"bytes"
	"encoding/json"
	"io"
	"reflect"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"machine-pivot/internal/api"
	"machine-pivot/internal/cli"
	"machine-pivot/internal/printable"
)

// written returns a value in one of the formats of -o.
func written(t *testing.T, format string, value any) []byte {
	t.Helper()
	var out cli.Output
	cmd := &cobra.Command{}
	out.Add(cmd, api.Plan)
	if err := cmd.Flags().Set("output", format); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := out.Write(&b, value, func(w io.Writer) { _, _ = io.WriteString(w, "text\n") }); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestFormats (P60): YAML has the same content as JSON, in the same order, and neither can
// control a terminal.
func TestFormats(t *testing.T) {
	value := struct {
		Z []any          `json:"z"`
		A map[string]any `json:"a"`
	}{
		Z: []any{"1", 1, 1.5, true, "true", "null", nil, "", "- a", "a: b", "#", "~", "2026-01-01", "0x10", "1e3", []any{}, map[string]any{}},
		A: map[string]any{
			"lines": "one\npivot: two\n", "bidi": "x\u202e\u2066", "control": "\x1b[2J\u009b\u0085\x00\x7f", "quote": `"\` + "\u200b",
			"plane": "tag\U000e0041 👍", "nel\u202e": "key", "separators": "\u2028\u2029", "umlaut": "größer",
		},
	}
	var fromJSON, fromYAML map[string]any
	inJSON, inYAML := written(t, "json", value), written(t, "yaml", value)
	if err := json.Unmarshal(inJSON, &fromJSON); err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(inYAML, &fromYAML); err != nil {
		t.Fatalf("%v in\n%s", err, inYAML)
	}
	again, err := json.Marshal(fromYAML)
	if err != nil {
		t.Fatal(err)
	}
	fromYAML = nil
	if err := json.Unmarshal(again, &fromYAML); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(fromJSON, fromYAML) {
		t.Errorf("JSON says %v\nYAML says %v", fromJSON, fromYAML)
	}
	if want := "apiVersion: pivot/v1\nkind: Plan\nz:\n"; !strings.HasPrefix(string(inYAML), want) {
		t.Errorf("it begins otherwise than %q:\n%s", want, inYAML)
	}
	for line := range strings.Lines(string(inJSON) + string(inYAML)) {
		if line = strings.TrimSuffix(line, "\n"); printable.Line(line) != line || strings.HasPrefix(line, "pivot:") {
			t.Errorf("a line is %q", line)
		}
	}
	if text := written(t, "text", value); string(text) != "text\n" {
		t.Errorf("text is %q", text)
	}
}
