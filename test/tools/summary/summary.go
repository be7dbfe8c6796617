package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// event is one line of go test -json. See go doc cmd/test2json and, for builds, go help buildjson.
type event struct {
	Action      string
	Package     string
	ImportPath  string // for build events
	Test        string
	Elapsed     float64
	Output      string
	FailedBuild string
}

// slow is the duration, in seconds, from which a passed test is printed on a line of its own.
// Otherwise packages that boot machines would print nothing for many minutes.
const slow = 5

type totals struct{ passed, failed, skipped int }

func (t *totals) add(u totals) {
	t.passed += u.passed
	t.failed += u.failed
	t.skipped += u.skipped
}

// test is one running or finished test. A test with subtests is counted by its subtests. It is
// counted itself only if it failed or was skipped and none of them was.
type test struct {
	output   []string
	subtests totals
	parent   bool
}

// pkg is one package under test.
type pkg struct {
	totals
	tests  map[string]*test
	output []string // outside of tests: panics, timeouts, TestMain
}

func (p *pkg) test(name string) *test {
	t := p.tests[name]
	if t == nil {
		t = &test{}
		p.tests[name] = t
		if i := strings.LastIndexByte(name, '/'); i > 0 {
			p.test(name[:i]).parent = true
		}
	}
	return t
}

type summary struct {
	totals
	w        io.Writer
	times    times
	failures failures
	packages map[string]*pkg
	builds   map[string][]string // output by import path
}

// summarize prints the summary of the stream r to w and returns the totals.
func summarize(r io.Reader, w io.Writer) (*summary, error) {
	s := &summary{w: w, packages: map[string]*pkg{}, builds: map[string][]string{}}
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			s.line(line)
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			return s, err
		}
	}
	s.unfinished()
	return s, nil
}

func (s *summary) line(line []byte) {
	var e event
	if err := json.Unmarshal(line, &e); err != nil || e.Action == "" {
		s.w.Write(line) // not an event: print it unchanged
		return
	}
	switch {
	case e.Action == "build-output":
		s.builds[e.ImportPath] = append(s.builds[e.ImportPath], e.Output)
	case e.Package == "":
	case e.Test != "":
		s.test(e)
	default:
		s.pkg(e)
	}
}

func (s *summary) of(name string) *pkg {
	p := s.packages[name]
	if p == nil {
		p = &pkg{tests: map[string]*test{}}
		s.packages[name] = p
	}
	return p
}

func (s *summary) test(e event) {
	p := s.of(e.Package)
	t := p.test(e.Test)
	var one totals
	switch e.Action {
	case "output":
		t.output = append(t.output, e.Output)
		return
	case "pass":
		one.passed = 1
	case "fail":
		one.failed = 1
	case "skip":
		one.skipped = 1
	default:
		return
	}
	delete(p.tests, e.Test)
	total := t.subtests
	switch {
	case t.parent && (one.passed > 0 || one.failed > 0 && total.failed > 0 || one.skipped > 0 && total.skipped > 0):
	default:
		total.add(one)
	}
	if one.passed > 0 && e.Elapsed >= slow {
		fmt.Fprintf(s.w, "    ok %s (%.0fs)\n", e.Test, e.Elapsed)
		_, within, _ := strings.Cut(e.Package, "/")                                     // without the module
		within = strings.TrimPrefix(strings.TrimPrefix(within, "internal/"), "author/") // the form in the documents
		s.times = append(s.times, timed{within, e.Test, e.Elapsed})
	}
	if one.failed > 0 {
		if total.failed > t.subtests.failed { // not because of a subtest
			s.failures = append(s.failures, failure{e.Package + " " + e.Test, messages(t.output)})
		}
		fmt.Fprintf(s.w, "--- FAIL %s %s (%.1fs)\n%s", e.Package, e.Test, e.Elapsed, strings.Join(t.output, ""))
	}
	if one.skipped > 0 {
		fmt.Fprintf(s.w, "--- SKIP %s %s: %s\n", e.Package, e.Test, reason(t.output))
	}
	if i := strings.LastIndexByte(e.Test, '/'); i > 0 {
		p.test(e.Test[:i]).subtests.add(total)
		return
	}
	p.totals.add(total)
}

func (s *summary) pkg(e event) {
	p := s.of(e.Package)
	switch e.Action {
	case "output":
		p.output = append(p.output, e.Output)
		return
	case "pass", "fail", "skip":
	default:
		return
	}
	delete(s.packages, e.Package)
	if e.Action == "fail" {
		s.packageFailed(p, e)
	}
	s.totals.add(p.totals)
	if e.Action == "fail" || p.totals != (totals{}) {
		fmt.Fprintf(s.w, "%-5s %s %.1fs (%d passed, %d failed, %d skipped)\n",
			map[string]string{"pass": "ok", "fail": "FAIL", "skip": "skip"}[e.Action],
			e.Package, e.Elapsed, p.passed, p.failed, p.skipped)
	}
}

// packageFailed prints why a package failed, unless a test's own failure is the reason.
func (s *summary) packageFailed(p *pkg, e event) {
	if e.FailedBuild != "" {
		s.failures = append(s.failures, failure{e.Package + " does not build", nil})
		fmt.Fprintf(s.w, "--- FAIL %s does not build\n%s", e.Package, strings.Join(s.builds[e.FailedBuild], ""))
		p.failed++
		return
	}
	// Tests that were still running when the process died, by a panic or a timeout.
	for _, name := range slices.Sorted(maps.Keys(p.tests)) {
		t := p.tests[name]
		p.totals.add(t.subtests)
		fmt.Fprintf(s.w, "--- FAIL %s %s did not end\n%s", e.Package, name, strings.Join(t.output, ""))
		if !t.parent {
			s.failures = append(s.failures, failure{e.Package + " " + name + " did not end", messages(t.output)})
			p.failed++
		}
	}
	if p.failed == 0 {
		s.failures = append(s.failures, failure{e.Package + " outside of its tests", messages(p.output)})
		p.failed++
		fmt.Fprintf(s.w, "--- FAIL %s\n%s", e.Package, strings.Join(p.output, ""))
	}
}

// unfinished counts packages without an end event as failed: go test itself was killed.
func (s *summary) unfinished() {
	for name := range s.packages {
		s.pkg(event{Action: "fail", Package: name})
	}
}

// reason returns the message of a skipped test, without the testing package's own lines.
func reason(output []string) string {
	var said []string
	for _, line := range strings.Split(strings.Join(output, ""), "\n") {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "=== ") || strings.HasPrefix(line, "--- ") {
			continue
		}
		said = append(said, line)
	}
	if len(said) == 0 {
		return "no reason given"
	}
	return strings.Join(said, " ")
}
