package rules

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestRequirements checks docs/dev/requirements.md in both directions: the comment of a test names each requirement's
// number, in parentheses, and each number in such a comment has a requirement.
func TestRequirements(t *testing.T) {
	promised, named := map[string]bool{}, map[string]bool{}
	for _, row := range regexp.MustCompile(`(?m)^- (P\d+): .+$`).FindAllStringSubmatch(readText(t, "docs/dev/requirements.md"), -1) {
		if promised[row[1]] {
			t.Errorf("%s is there twice", row[1])
		}
		promised[row[1]] = true
	}
	comment := regexp.MustCompile(`\((P\d+(?:, P\d+)*)\)`)
	for path, text := range testFiles(t) {
		for _, m := range comment.FindAllStringSubmatch(text, -1) {
			for number := range strings.SplitSeq(m[1], ", ") {
				named[number] = true
				if !promised[number] {
					t.Errorf("%s names %s, which docs/dev/requirements.md does not explain", path, number)
				}
			}
		}
	}
	if len(promised) < 80 {
		t.Errorf("%d requirements found; the test does not recognize them any more", len(promised))
	}
	for number := range promised {
		if !named[number] {
			t.Errorf("no test's comment names %s", number)
		}
	}
	checkDesigns(t, promised, testFunctions(t))
}

// checkDesigns checks the tables of promises: each has a verdict, and requirements or tests that exist; only what is
// missing or not ours may have none.
func checkDesigns(t *testing.T, requirements, tests map[string]bool) {
	t.Helper()
	_, text, found := strings.Cut(readText(t, "docs/dev/requirements.md"), "\n## The designs that this project follows\n")
	rows := regexp.MustCompile(`(?m)^\| ([^|]+) \| ([^|]+) \|([^|]*)\|$`).FindAllStringSubmatch(text, -1)
	if !found || len(rows) < 50 || len(rows) != strings.Count(text, "\n| ") {
		t.Fatalf("%d rows of promises, %d lines", len(rows), strings.Count(text, "\n| "))
	}
	verdict := regexp.MustCompile(`^(yes|differs|in part|checked|a plan|not ours|missing)\b`)
	for _, row := range rows {
		promise, here, shown := row[1], row[2], row[3]
		if promise == "promise" {
			continue
		}
		if !verdict.MatchString(here) {
			t.Errorf("%s: no verdict: %s", promise, here)
		}
		names := regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(shown, -1)
		for _, m := range names {
			if !tests[m[1]] {
				t.Errorf("%s: shown by %s, which is not there", promise, m[1])
			}
		}
		numbers := regexp.MustCompile(`\bP\d+\b`).FindAllString(shown, -1)
		for _, number := range numbers {
			if !requirements[number] {
				t.Errorf("%s: there is no requirement %s", promise, number)
			}
		}
		if none := len(names)+len(numbers) == 0; none && !strings.HasPrefix(here, "not ours") && !strings.HasPrefix(here, "missing") {
			t.Errorf("%s: nothing shows it", promise)
		}
	}
}

// testFunctions returns all tests, as PACKAGE.NAME.
func testFunctions(t *testing.T) map[string]bool {
	t.Helper()
	tests := map[string]bool{}
	function := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	for path, text := range testFiles(t) {
		for _, m := range function.FindAllStringSubmatch(text, -1) {
			tests[filepath.Dir(path)+"."+m[1]] = true
		}
	}
	return tests
}

// testFiles returns the texts of all test files, by PACKAGE/FILE.
func testFiles(t *testing.T) map[string]string {
	t.Helper()
	texts := map[string]string{}
	for _, p := range packages(t) {
		for _, name := range slices.Concat(p.TestGoFiles, p.XTestGoFiles) {
			texts[p.short()+"/"+name] = readText(t, filepath.Join(p.Dir, name))
		}
	}
	return texts
}

// TestComparison: what docs/cluster.md says of pivot, compared with others, is held by tests that exist, or by a
// page.
func TestComparison(t *testing.T) {
	_, text, _ := strings.Cut(readText(t, "docs/cluster.md"), "\n## Beside others\n")
	text, _, _ = strings.Cut(text, "\n## ")
	rows, tests := regexp.MustCompile(`(?m)^\| [^|]+ \| ([^|]+) \|.*$`).FindAllStringSubmatch(text, -1), testFunctions(t)
	if len(rows) < 10 {
		t.Fatalf("%d rows", len(rows))
	}
	for _, row := range rows {
		named := regexp.MustCompile("`([a-z/]+\\.Test\\w+)`").FindAllStringSubmatch(row[1], -1)
		for _, m := range named {
			if !tests[m[1]] {
				t.Errorf("%s: there is no %s", row[1], m[1])
			}
		}
		if ours := strings.TrimSpace(row[1]); len(named) == 0 && ours != "no" && !strings.Contains(ours, "](") {
			t.Errorf("nothing holds this: %s", ours)
		}
	}
}
