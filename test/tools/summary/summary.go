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

// event is one line of go test -json; see go doc cmd/test2json and, for builds,
// go help buildjson.
type event struct {
	Action      string
	Package     string
	ImportPath  string // only in build events
	Test        string
	Elapsed     float64
	Output      string
	FailedBuild string
}

// slow is the duration in seconds from which a passed test gets its own line. Otherwise
// packages that boot machines would print nothing for many minutes.
const slow = 5

type totals struct{ passed, failed, skipped int }

func (t *totals) add(u totals) {
	t.passed += u.passed
	t.failed += u.failed
	t.skipped += u.skipped
}

// test is a running or finished test. For a test with subtests only the subtests are
// counted, unless the test failed or was skipped and none of its subtests did: each
// count is a number of things to look at.
type test struct {
	output   []string
	subtests totals
	parent   bool
}

// pkg is one package under test.
type pkg struct {
	totals
	tests  map[string]*test
	output []string // output outside of tests: panics, timeouts, TestMain
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

// summarize prints a summary of the stream r to w as it arrives, and returns the result.
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
		s.w.Write(line) // not JSON: print it as it is
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
		_, within, _ := strings.Cut(e.Package, "/")                                     // the part after the module
		within = strings.TrimPrefix(strings.TrimPrefix(within, "internal/"), "author/") // as documents name packages
		s.times = append(s.times, timed{within, e.Test, e.Elapsed})
	}
	if one.failed > 0 {
		if total.failed > t.subtests.failed { // it failed itself, not only a subtest
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

// packageFailed reports why a package failed if the reason is not the failure of a test.
func (s *summary) packageFailed(p *pkg, e event) {
	if e.FailedBuild != "" {
		s.failures = append(s.failures, failure{e.Package + " does not build", nil})
		fmt.Fprintf(s.w, "--- FAIL %s does not build\n%s", e.Package, strings.Join(s.builds[e.FailedBuild], ""))
		p.failed++
		return
	}
	// Tests that were still running when the process ended, by a panic or a timeout.
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

// unfinished counts packages without a final event as failed, because go test was killed.
func (s *summary) unfinished() {
	for name := range s.packages {
		s.pkg(event{Action: "fail", Package: name})
	}
}

// reason returns the message of a skipped test, without the lines that package testing
// adds.
func reason(output []string) string {
	var message []string
	for _, line := range strings.Split(strings.Join(output, ""), "\n") {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "=== ") || strings.HasPrefix(line, "--- ") {
			continue
		}
		message = append(message, line)
	}
	if len(message) == 0 {
		return "no reason given"
	}
	return strings.Join(message, " ")
}
