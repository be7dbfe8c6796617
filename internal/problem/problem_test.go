package problem_test

import (
	"encoding/json"
	"strings"
	"testing"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/problem"
)

// TestForms: one problem as a line for people and as JSON for programs.
func TestForms(t *testing.T) {
	placed := problem.Errorf("$.spec", "it is %s", "missing")
	placed.File, placed.Line = "a.yaml", 7
	syntax := problem.Errorf("$", "it is not JSON")
	syntax.Line, syntax.Column = 3, 9
	inFile := syntax
	inFile.File = "a.json"
	inLine := syntax
	inLine.Column = 0
	merged := problem.Warningf("$.spec", "it is large").WithHint("split it")
	merged.File = "merged for role worker"
	for _, c := range []struct {
		p          problem.Problem
		line, json string
	}{
		{problem.Errorf("ostree=/x", "names the deployment"), "error: ostree=/x: names the deployment",
			`{"path":"ostree=/x","severity":"error","message":"names the deployment"}`},
		{placed, "a.yaml:7: error: $.spec: it is missing",
			`{"file":"a.yaml","line":7,"path":"$.spec","severity":"error","message":"it is missing"}`},
		{syntax, "line 3, column 9: error: $: it is not JSON",
			`{"line":3,"column":9,"path":"$","severity":"error","message":"it is not JSON"}`},
		{inFile, "a.json:3:9: error: $: it is not JSON",
			`{"file":"a.json","line":3,"column":9,"path":"$","severity":"error","message":"it is not JSON"}`},
		{inLine, "line 3: error: $: it is not JSON",
			`{"line":3,"path":"$","severity":"error","message":"it is not JSON"}`},
		{merged, "merged for role worker: warning: $.spec: it is large; split it",
			`{"file":"merged for role worker","path":"$.spec","severity":"warning","message":"it is large","hint":"split it"}`},
	} {
		document, err := json.Marshal(c.p)
		if err != nil || c.p.String() != c.line || string(document) != c.json {
			t.Errorf("%s\n%s (%v)\nwant\n%s\n%s", c.p, document, err, c.line, c.json)
		}
	}
}

// TestNothingWrong: without problems the JSON is an empty list, not null.
func TestNothingWrong(t *testing.T) {
	var report problem.Report
	document, err := json.Marshal(struct{ Problems problem.Report }{report})
	if err != nil || string(document) != `{"Problems":[]}` || report.Failed() || report.Err("it") != nil {
		t.Errorf("%s %v", document, err)
	}
}

// TestParts: the report of a part is converted to one of the whole, and does not change itself.
func TestParts(t *testing.T) {
	part := problem.Report{problem.Errorf(".mode", "it is large").WithHint("use 0644"), problem.Warningf("", "it is old")}
	const want = `a.yaml: error: $.spec.config.mode: it is large; use 0644
a.yaml: warning: $.spec.config: it is old`
	if got := part.Below("$.spec.config").In("a.yaml").String(); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
	if got := part.Errors().String(); got != "error: .mode: it is large; use 0644" {
		t.Error(got)
	}
	if got := part[0].Within("$.files[1]", "file /a: ").String(); got != "error: $.files[1]: file /a: it is large; use 0644" {
		t.Error(got)
	}
}

// TestBounds: a report is bounded. Dropped problems make it fail only if there is an error.
func TestBounds(t *testing.T) {
	var report problem.Report
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
	err := report.Err("it")
	if err == nil || !strings.HasPrefix(err.Error(), "cannot use it:\nwarning: $: number 0") || fault.KindOf(err) != fault.BadInput || fault.HintOf(err) == "" {
		t.Error(err)
	}
}

// TestMessageOfSeveralLines: a library's message of several lines becomes one line, without
// escaped line breaks.
func TestMessageOfSeveralLines(t *testing.T) {
	var report problem.Report
	report.Fail("$.a\nb", "%v", "first\n  second\n\n")
	report.Fail("$", "%s is wrong", problem.Quoted("x\ny"))
	report.Fail("$", "%v", "yaml: errors:\n  line 1: x\n  line 2: y")
	const want = "error: $.a\\u000ab: first; second\nerror: $: \"x\\ny\" is wrong\nerror: $: yaml: errors: line 1: x; line 2: y"
	if report.String() != want {
		t.Errorf("%s\nwant\n%s", report, want)
	}
}
