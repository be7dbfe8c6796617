package rules

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestNightly checks that each test, and each case of test/suites/e2e, is run by exactly one of "make
// test" and "make nightly". The first skips the tests that the Makefile's NIGHTLY names, in all
// packages; the second runs them, in the packages that its rule lists.
func TestNightly(t *testing.T) {
	makefile := readText(t, "Makefile")
	declared := regexp.MustCompile(`(?m)^NIGHTLY = \^\(([\w|]+)\)\$\$$`).FindStringSubmatch(makefile)
	rule := regexp.MustCompile(`-run '\$\(NIGHTLY\)'((?: \./[\w/-]+)+)`).FindStringSubmatch(makefile)
	if declared == nil || rule == nil {
		t.Fatal("the Makefile has no NIGHTLY that is a list of tests, or no rule that runs it")
	}
	nightly := strings.Split(declared[1], "|")
	in := strings.Fields(strings.NewReplacer("./internal/", "", "./", "").Replace(rule[1])) // as testFunctions names them
	found := map[string]bool{}
	for name := range testFunctions(t) {
		pkg, function, _ := strings.Cut(name, ".")
		if !slices.Contains(nightly, function) {
			continue
		}
		found[function] = true
		if !slices.Contains(in, pkg) {
			t.Errorf("neither command runs %s: NIGHTLY has its name, and make nightly tests only %q", name, in)
		}
	}
	for _, name := range nightly {
		if !found[name] {
			t.Errorf("NIGHTLY names %s, which is not there", name)
		}
	}
	of := map[string]string{} // the test of each case
	for _, c := range bootCases(t) {
		if other, there := of[c.name]; there && slices.Contains(nightly, other) != slices.Contains(nightly, c.test) {
			t.Errorf("both commands run the case %q: it is in %s and in %s", c.name, other, c.test)
		}
		of[c.name] = c.test
	}
	if len(of) < 20 {
		t.Errorf("only the cases %v in test/suites/e2e", of)
	}
}

// bootCase is a row of a table of test/suites/e2e.
type bootCase struct{ test, name string }

// bootCases returns the rows of the tables in the test functions of test/suites/e2e.
func bootCases(t *testing.T) (cases []bootCase) {
	t.Helper()
	line := regexp.MustCompile(`(?m)^(?:func (Test\w+)\(|\t\t\{"([^"]+)", )`)
	for _, path := range matches(t, "test/suites/e2e/*_test.go") {
		test := ""
		for _, m := range line.FindAllStringSubmatch(readText(t, path), -1) {
			if m[1] != "" {
				test = m[1]
			} else {
				cases = append(cases, bootCase{test, m[2]})
			}
		}
	}
	return cases
}
