package rules

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestBesideBootc: each row about bootc in docs/dev/testing.md is held by tests that exist, and which "make test" or "make
// nightly" runs, as the row says.
func TestBesideBootc(t *testing.T) {
	_, text, _ := strings.Cut(readText(t, "docs/dev/testing.md"), "\n## Beside bootc\n")
	text, _, _ = strings.Cut(text, "\n## ")
	nightly := regexp.MustCompile(`(?m)^NIGHTLY = \^\(([\w|]+)\)\$\$$`).FindStringSubmatch(readText(t, "Makefile"))
	if nightly == nil {
		t.Fatal("the Makefile has no NIGHTLY")
	}
	tests, held := testFunctions(t), map[string]bool{}
	for _, row := range regexp.MustCompile(`(?m)^\| (\d+) \| [^|]+ \| ([^|]+) \| (test|nightly) \|$`).FindAllStringSubmatch(text, -1) {
		number, in := row[1], row[3]
		named := regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(row[2], -1)
		held[number] = held[number] || len(named) > 0
		for _, m := range named {
			_, function, _ := strings.Cut(m[1], ".")
			if !tests[m[1]] {
				t.Errorf("%s: there is no %s", number, m[1])
			}
			if slices.Contains(strings.Split(nightly[1], "|"), function) != (in == "nightly") {
				t.Errorf("%s: make %s does not run %s", number, in, m[1])
			}
		}
	}
	for n := 1; n <= 12; n++ {
		if !held[strconv.Itoa(n)] {
			t.Errorf("nothing holds %d", n)
		}
	}
	if rows := strings.Count(text, "\n| "); rows != len(regexp.MustCompile(`(?m)^\| \d+ \| [^|]+ \| [^|]+ \| (test|nightly) \|$`).FindAllString(text, -1))+1 {
		t.Errorf("%d rows, some of another form", rows)
	}
}

// TestProperties: each property of a real system that docs/dev/testing.md lists is in a guest of a test that exists.
func TestProperties(t *testing.T) {
	_, text, _ := strings.Cut(readText(t, "docs/dev/testing.md"), "\n## Guests with the properties of a real system\n")
	text, _, _ = strings.Cut(text, "\n## ")
	rows := regexp.MustCompile(`(?m)^\| ([^|]+) \| ([^|]+) \| [^|]*\|$`).FindAllStringSubmatch(text, -1)
	if len(rows) < 10 {
		t.Fatalf("%d rows", len(rows))
	}
	tests := testFunctions(t)
	for _, row := range rows[1:] { // without the title
		named := regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(row[2], -1)
		for _, m := range named {
			if !tests[m[1]] {
				t.Errorf("%s: there is no %s", row[1], m[1])
			}
		}
		if len(named) == 0 && row[1] != "---" {
			t.Errorf("%s: no test has it", row[1])
		}
	}
}
