package document_test

import (
	"fmt"
	"strings"
	"testing"

	"machine-pivot/internal/machineconfig/document"
	"machine-pivot/internal/problem"
	"machine-pivot/test/tools/sample"
)

// TestRead: both formats yield the same values, and each problem has its line.
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

// TestSyntaxErrors: a syntax error, for which there is no path, has a line and a column.
func TestSyntaxErrors(t *testing.T) {
	const text = "{\n  \"a\": 1,\n  \"b\": }\n"
	const want = "3:8: error: $: it is not JSON: invalid character '}' looking for beginning of value"
	if report := document.Read("a.json", []byte(text), func(document.Node) {}); report.String() != "a.json:"+want {
		t.Error(report)
	}
	var report problem.Report
	if _, ok := document.ParseJSON([]byte(text), &report); ok || report.In("a.json").String() != "a.json:"+want {
		t.Error(report)
	}
}

// TestManyValues: the number of values is limited, because two bytes of text take 160 bytes of
// memory.
func TestManyValues(t *testing.T) {
	if testing.Short() {
		t.Skip("parses a million values, twice")
	}
	many := []byte(`{"a":[` + strings.Repeat("1,", 1_000_000) + "1]}")
	const want = "error: $: it holds more than 1000000 values"
	var report problem.Report
	if _, ok := document.ParseJSON(many, &report); ok || report.String() != want {
		t.Error(report)
	}
	if report := document.Read("a.json", many, func(document.Node) { t.Error("it is taken") }); report.String() != "a.json:1: "+want {
		t.Error(report)
	}
}

// TestManyDocuments: the report is limited, however many documents have problems.
func TestManyDocuments(t *testing.T) {
	report := document.Read("a.yaml", []byte(strings.Repeat("a: 1\n---\n", sample.Rounds(100_000))), func(root document.Node) {
		for range 5 {
			root.Get("a").Text()
		}
	})
	if len(report) > 501 || !report.Failed() {
		t.Error(len(report))
	}
}
