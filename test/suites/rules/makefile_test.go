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

// bootCase is a row of a table of test/suites/e2e: a test, the name of a case, and its function if that has a name.
type bootCase struct{ test, name, function string }

// bootCases returns the rows of the tables in the test functions of test/suites/e2e.
func bootCases(t *testing.T) (cases []bootCase) {
	t.Helper()
	line := regexp.MustCompile(`(?m)^(?:func (Test\w+)\(|\t\t\{"([^"]+)", (?:(\w+)\})?)`)
	for _, path := range matches(t, "test/suites/e2e/*_test.go") {
		test := ""
		for _, m := range line.FindAllStringSubmatch(readText(t, path), -1) {
			if m[1] != "" {
				test = m[1]
			} else {
				cases = append(cases, bootCase{test, m[2], m[3]})
			}
		}
	}
	return cases
}

// TestSweptBoots checks that "make sweep" runs each case of test/suites/e2e that PIVOT_SWEEP makes longer.
func TestSweptBoots(t *testing.T) {
	swept := regexp.MustCompile(`\|Test\(([\w|]+)\)\$\$/(\w+)' `).FindStringSubmatch(readText(t, "Makefile"))
	if swept == nil {
		t.Fatal("the Makefile's sweep has no cases of test/suites/e2e")
	}
	longer := longerCases(t)
	for _, c := range longer {
		if !slices.Contains(strings.Split(swept[1], "|"), strings.TrimPrefix(c.test, "Test")) || !strings.Contains(strings.ReplaceAll(c.name, " ", "_"), swept[2]) {
			t.Errorf("make sweep does not run the case %q of %s", c.name, c.test)
		}
	}
	if len(longer) < 3 {
		t.Errorf("PIVOT_SWEEP makes only %v longer", longer)
	}
}

// longerCases returns the rows of the tables of test/suites/e2e with a function that asks whether the sweep is long.
func longerCases(t *testing.T) (cases []bootCase) {
	t.Helper()
	asks := regexp.MustCompile(`(?m)^func (\w+)\(.*\{\n(?:\t.*\n|\n)*?\tif long\(\)`)
	names := map[string]bool{}
	for _, path := range matches(t, "test/suites/e2e/*_test.go") {
		for _, m := range asks.FindAllStringSubmatch(readText(t, path), -1) {
			names[m[1]] = true
		}
	}
	for _, c := range bootCases(t) {
		if names[c.function] {
			cases = append(cases, c)
		}
	}
	return cases
}
