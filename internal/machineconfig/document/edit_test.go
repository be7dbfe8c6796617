package document_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"machine-pivot/internal/machineconfig/document"
)

// TestEdit: a change keeps the form of everything else.
func TestEdit(t *testing.T) {
	for name, c := range map[string]struct{ in, out string }{
		"yaml":                {"# ours\nb: 2 # two\nlist:\n- x\ngone: 1\nkept: '1'\n", "# ours\nb: 2 # two\nlist:\n- x\nkept: '1'\nadded: \"7\"\nmade:\n  n: 7\n"},
		"yaml, indented list": {"b: 2\nlist:\n  - x\ngone: 1\n", "b: 2\nlist:\n  - x\nadded: \"7\"\nmade:\n  n: 7\n"},
		"yaml, in braces":     {"{b: 2, gone: 1}\n", "{b: 2, added: \"7\", made: {n: 7}}\n"},
		"json":                {`{"b":2.50,"gone":1,"a":"<\u00e9>"}`, `{"b":2.50,"a":"<é>","added":"7","made":{"n":7}}`},
		"json, lines":         {"{\n    \"b\": 2,\n    \"gone\": 1\n}\n", "{\n  \"b\": 2,\n  \"added\": \"7\",\n  \"made\": {\n    \"n\": 7\n  }\n}\n"},
	} {
		got, report := document.Edit("a", []byte(c.in), func(root document.Node) {
			root.RemoveMembers(func(key string) bool { return key == "gone" })
			root.SetText("added", "x")
			root.SetText("added", "7")
			root.Ensure("made").SetNumber("n", 7)
			root.Ensure("made")
		})
		if string(got) != c.out || len(report) > 0 {
			t.Errorf("%s: %v\n%s\nwant\n%s", name, report, got, c.out)
		}
		if same, report := document.Edit("a", []byte(c.in), func(document.Node) {}); string(same) != c.in || len(report) > 0 {
			t.Errorf("%s, unchanged: %v\n%s", name, report, same)
		}
	}
}

// TestAppend: an object is added to a list, which is made if there is none, and to nothing else.
func TestAppend(t *testing.T) {
	for in, want := range map[string]string{
		"a: 1\nlist:\n- x\n":     "a: 1\nlist:\n- x\n- text: |-\n    {\"n\":1}\n",
		"a: 1\nlist:\n  - x\n":   "a: 1\nlist:\n  - x\n  - text: |-\n      {\"n\":1}\n",
		"a: 1\n":                 "a: 1\nlist:\n  - text: |-\n      {\"n\":1}\n",
		"a: 1\nlist: null\n":     "a: 1\nlist:\n  - text: |-\n      {\"n\":1}\n",
		"a: 1\nlist: {b: c}\n":   "",
		"a: 1\nlist: x\n":        "",
		`{"a":1,"list":["x"]}`:   `{"a":1,"list":["x",{"text":"{\"n\":1}"}]}`,
		`{"list":{"text":"x"}}`:  "",
		"list: [{text: before}]": "list: [{text: before}, {text: \"{\\\"n\\\":1}\"}]\n",
	} {
		appended := false
		got, report := document.Edit("a", []byte(in), func(root document.Node) { appended = root.Append("list", "text", `{"n":1}`) })
		if appended != (want != "") || appended && string(got) != want || len(report) > 0 {
			t.Errorf("%q: appended %v, %v\n%s\nwant\n%s", in, appended, report, got, want)
		}
	}
}

// TestEditRefuses: a change is made completely or not at all.
func TestEditRefuses(t *testing.T) {
	for in, want := range map[string]string{
		"":                      "a: error: $: it is empty",
		"a: 1\n---\nb: 1\n":     "a: error: $: it holds more than one document",
		"a: &x 1\nb: *x\n":      "a:1: error: $: YAML anchors and aliases are not supported; write the values in place of *NAME",
		"a: 1\na: 2\n":          "a:2: error: $.a: it is there more than once",
		"a: [":                  "a:1: error: $: it is not YAML: did not find expected node content",
		"a: 1\nb: {wrong: x}\n": "a:2: error: $.b.wrong: no",
		"{a}":                   "a: error: $: it cannot be written back in the form that it has",
	} {
		got, report := document.Edit("a", []byte(in), func(root document.Node) {
			root.SetText("new", "x")
			if wrong := root.Get("b").Get("wrong"); !wrong.IsNull() {
				wrong.Fail("no")
			}
		})
		if got != nil || !strings.HasPrefix(report.String(), want) {
			t.Errorf("%q: %q, %v\nwant %s", in, got, report, want)
		}
	}
}

// TestValues: both formats yield the values that JSON has.
func TestValues(t *testing.T) {
	for in, want := range map[string]string{
		"octal: 0644\nhex: 0x10\nfloat: 420.0\nsmall: 1e-7\nlarge: 12e6\nday: 2001-02-03\nno: null\nalso: ~\non: on\nyes: true\n": `{"octal":420,"hex":16,"float":420,"small":1e-07,"large":1.2e+07,"day":"2001-02-03","no":null,"also":null,"on":"on","yes":true}`,
		"z: &a [1, {x: y}]\na: *a\n1: one\n": `{"z":[1,{"x":"y"}],"a":[1,{"x":"y"}],"1":"one"}`,
		`{"b": 1.50, "a": 18446744073709551616, "t": "\ud83d\ude00<", "e": [], "f": false, "n": null}`: `{"b":1.50,"a":18446744073709551616,"t":"😀<","e":[],"f":false,"n":null}`,
	} {
		report := document.Read("a", []byte(in), func(root document.Node) {
			if got := string(root.JSON()); got != want {
				t.Errorf("%s is\n%s\nwant\n%s", in, got, want)
			}
		})
		if len(report) > 0 {
			t.Error(report)
		}
	}
}

// FuzzEdit: an accepted text can be edited and read again, and encoding/json reads the same
// values.
func FuzzEdit(f *testing.F) {
	for _, in := range []string{"a: 1\nb: [x]\n", `{"a":1,"b":[1.5,"\u00e9",{}],"c":null}`, "{a: 'x'}", "# c\na:\n  - b: |\n      x\n", "? a\n: b\n"} {
		f.Add([]byte(in))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		var before []byte
		same, report := document.Edit("a", in, func(root document.Node) { before = root.JSON() })
		if report.Failed() {
			return
		}
		var got, want any
		if err := json.Unmarshal(before, &got); err != nil || string(same) != string(in) {
			t.Fatalf("%q is %s (%v), and unchanged %q", in, before, err, same)
		}
		if json.Unmarshal(in, &want) == nil && !reflect.DeepEqual(got, want) {
			t.Errorf("%q is %v, want %v", in, got, want)
		}
		if _, ok := got.(map[string]any); !ok {
			return
		}
		out, report := document.Edit("a", in, func(root document.Node) { root.SetText("added", "x") })
		if report.Failed() {
			return // the library cannot encode it
		}
		_, report = document.Edit("a", out, func(root document.Node) {
			if root.Get("added").Text() != "x" {
				t.Errorf("%q became %q", in, out)
			}
			root.RemoveMembers(func(key string) bool { return key == "added" })
			if again := root.JSON(); string(again) != string(before) && !strings.Contains(string(before), `"added"`) {
				t.Errorf("%q became %q: %s, and was %s", in, out, again, before)
			}
		})
		if report.Failed() {
			t.Errorf("%q became %q: %v", in, out, report)
		}
	})
}
