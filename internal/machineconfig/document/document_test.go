package document_test

import (
	"fmt"
	"strings"
	"testing"

	"machine-pivot/internal/machineconfig/document"
)

// What is read is the same in both formats, and each problem has its line.
func TestRead(t *testing.T) {
	for file, text := range map[string]string{
		"a.json": "{\n\"name\": 7,\n\"list\": [\n\"x\",\n{\"on\": \"no\"}\n]}",
		"a.yaml": "\nname: 7\nlist:\n- x\n- on: no\n",
	} {
		report := document.Read(file, []byte(text), func(root document.Node) {
			root.Known("a test", "name")
			root.Get("name").Text()
			items := root.Get("list").Items()
			if items[0].Text() != "x" {
				t.Error(items)
			}
			items[1].Get("on").Boolean()
			items[1].Get("absent").Fail("it is missing")
		})
		want := fmt.Sprintf(`%[1]s:2: error: $.name: it is a number, not a string
%[1]s:3: error: $.list: unknown member; a test has no such
%[1]s:5: error: $.list[1].on: it is a string, not true or false
%[1]s:5: error: $.list[1].absent: it is missing`, file)
		if report.String() != want {
			t.Errorf("%s\nwant\n%s", report, want)
		}
	}
}

// A report is bounded; what does not fit in makes it fail only if it is an error.
func TestBounds(t *testing.T) {
	var report document.Report
	for i := range 10_000 {
		report.Warn("$", "number %d %s", i, strings.Repeat("x", 10_000))
	}
	if report.Failed() || len(report) != 501 || len(report.String()) > 501*600 {
		t.Errorf("%d problems, %d bytes", len(report), len(report.String()))
	}
	report.Fail("$", "one error")
	if !report.Failed() || len(report) != 501 {
		t.Errorf("%d problems: %s", len(report), report[500])
	}
	if err := report.Err("it"); err == nil || !strings.HasPrefix(err.Error(), "cannot use it:\nwarning: $: number 0") {
		t.Error(err)
	}
}

// TestMessageOfSeveralLines (D12): a library's message of several lines is one line,
// without escapes for them.
func TestMessageOfSeveralLines(t *testing.T) {
	var report document.Report
	report.Fail("$.a\nb", "%v", "first\n  second\n\n")
	report.Fail("$", "%s is wrong", document.Quoted("x\ny"))
	const want = "error: $.a\\u000ab: first; second\nerror: $: \"x\\ny\" is wrong"
	if report.String() != want {
		t.Errorf("%s\nwant\n%s", report, want)
	}
}

// Many documents with many problems take no more than one.
func TestManyDocuments(t *testing.T) {
	report := document.Read("a.yaml", []byte(strings.Repeat("a: 1\n---\n", 100_000)), func(root document.Node) {
		for range 5 {
			root.Get("a").Text()
		}
	})
	if len(report) > 501 || !report.Failed() {
		t.Error(len(report))
	}
}
