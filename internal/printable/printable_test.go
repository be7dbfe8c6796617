package printable_test

import (
	"encoding/json"
	"strings"
	"testing"

	"machine-pivot/internal/printable"
)

// hostile maps text that does harm on a terminal or in a log to its escaped form.
var hostile = map[string]string{
	"":                                     "",
	"plain, with \\ and \"quotes\"":        "plain, with \\ and \"quotes\"",
	"größer, 日本語, ✓, 👍, é":                 "größer, 日本語, ✓, 👍, é",
	"a\x1b[2J\x1b]0;title\ab":              `a\x1b[2J\x1b]0;title\ab`,
	"over\rwritten\b\b":                    `over\rwritten\b\b`,
	"nul\x00del\x7f":                       `nul\x00del\x7f`,
	"C1\u009b31m\u0085":                    `C1\u009b31m\u0085`,
	"raw C1 \x9b31m and \xff":              `raw C1 \x9b31m and \xff`,
	"bidi\u202e\u2066\u2069\u200f":         `bidi\u202e\u2066\u2069\u200f`,
	"hidden\u200b\u2060\ufeff\u00ad\u00a0": `hidden\u200b\u2060\ufeff\u00ad\u00a0`,
	"lines\u2028\u2029\v\f":                `lines\u2028\u2029\v\f`,
	"tag\U000e0041\ue000":                  `tag\U000e0041\ue000`,
	"cut \xe2\x82":                         `cut \xe2\x82`,
	"\ufffd is printable":                  "\ufffd is printable",
}

func TestLine(t *testing.T) {
	for in, want := range hostile {
		if got := printable.Line(in); got != want || printable.Line(got) != want || printable.Text(in) != want {
			t.Errorf("%q becomes %q and %q, want %q", in, got, printable.Text(in), want)
		}
	}
	if got, want := printable.Line("a\npivot: prove: ok\r\n"), `a\npivot: prove: ok\r\n`; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestText(t *testing.T) {
	for in, want := range map[string]string{
		"one\n":                   "one",
		"tried:\n  a: x\n  b: y":  "tried:\n  a: x\n  b: y",
		"one\npivot: two\n\tt\n":  "one\n  pivot: two\n  \\tt",
		"one\r\n\x1b[A\npivot: 2": "one\\r\n  \\x1b[A\n  pivot: 2",
	} {
		if got := printable.Text(in); got != want || printable.Text(got) != want {
			t.Errorf("%q becomes %q, want %q", in, got, want)
		}
	}
}

func TestWriter(t *testing.T) {
	var b strings.Builder
	w := printable.Writer(&b)
	for _, p := range []string{"a\x1b[", "31m\nb\n", "\n", "c"} {
		if n, err := w.Write([]byte(p)); n != len(p) || err != nil {
			t.Errorf("%d, %v", n, err)
		}
	}
	if got, want := b.String(), "a\\x1b[31m\nb\n\nc"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestJSON: escaping makes a document harmless without changing its values.
func TestJSON(t *testing.T) {
	for in := range hostile {
		var raw strings.Builder
		encoder := json.NewEncoder(&raw)
		encoder.SetEscapeHTML(false)
		encoder.SetIndent("", "  ")
		if err := encoder.Encode([]string{in}); err != nil {
			t.Fatal(err)
		}
		got := printable.JSON([]byte(raw.String()))
		var before, after []string
		if err := json.Unmarshal(got, &after); err != nil {
			t.Errorf("%q: %v", got, err)
			continue
		}
		if err := json.Unmarshal([]byte(raw.String()), &before); err != nil || before[0] != after[0] {
			t.Errorf("%q becomes %q", before, after)
		}
		for line := range strings.Lines(string(got)) {
			if text := strings.TrimSuffix(line, "\n"); printable.Line(text) != text {
				t.Errorf("%q is left in %q", line, got)
			}
		}
	}
}
