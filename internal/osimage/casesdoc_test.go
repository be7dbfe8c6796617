package osimage_test

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestCasesAreDocumented compares docs/dev/derived-cases.md with the tables of cases: each row
// names existing tests and cases, each case has a row, and the column about the reference
// implementation agrees with the tests.
func TestCasesAreDocumented(t *testing.T) {
	tests, cases := testNames(t), allCases(t)
	unnamed := maps.Clone(cases)
	for i, row := range caseRows(t) {
		if row.number != i+1 {
			t.Fatalf("row %d follows row %d", row.number, i)
		}
		same := "–"
		for _, test := range row.tests {
			if !tests[test] {
				t.Errorf("row %d: there is no %s", row.number, test)
			}
		}
		for _, name := range row.cases {
			differs, known := cases[name]
			if !known {
				t.Errorf("row %d: there is no %q", row.number, name)
			}
			delete(unnamed, name)
			if differs != "" {
				same = "no"
			} else if same != "no" {
				same = "yes"
			}
		}
		if row.same != same {
			t.Errorf("row %d says %q where the cases say %q", row.number, row.same, same)
		}
	}
	for name := range unnamed {
		t.Errorf("no row has %q", name)
	}
	files, err := os.ReadDir(recordedDir)
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		of := func(name string) bool {
			_, name, _ = strings.Cut(name, ": ")
			return filepath.Base(recordedFile(name)) == file.Name()
		}
		if !slices.ContainsFunc(slices.Collect(maps.Keys(cases)), of) {
			t.Errorf("%s/%s is of no case", recordedDir, file.Name())
		}
	}
}

// allCases returns the cases that were recorded with the reference, as "TEST: CASE", with the
// reason if the results differ.
func allCases(t *testing.T) map[string]string {
	all := map[string]string{}
	base := newOSTree(t).asBase()
	for test, cases := range map[string]func(*testing.T, osBase) []derivedCase{
		"TestDerived": derivedCases, "TestDerivedPolicy": policyCases, "TestChangedObjects": changedObjectCases, "TestSparse": sparseCases,
	} {
		for _, c := range cases(t, base) {
			all[test+": "+c.name] = c.differs
		}
	}
	for _, c := range refusedCases() {
		all["TestDerivedRefused: "+c.name] = c.differs
	}
	for _, c := range plainCases() {
		all["TestPlain: "+c.name] = plainDiffers
	}
	return all
}

// caseRow is a row of the document.
type caseRow struct {
	number int
	same   string
	tests  []string
	cases  []string // "TEST: CASE"
}

// caseRows reads the rows. The last cell is a list, separated by " — ", of tests with their
// cases ("`TEST`: CASE; CASE") or of tests alone.
func caseRows(t *testing.T) (rows []caseRow) {
	data, err := os.ReadFile("../../docs/dev/derived-cases.md")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		cells := strings.Split(strings.Trim(line, "|\n"), " | ")
		number, err := strconv.Atoi(strings.TrimSpace(cells[0]))
		if err != nil {
			continue
		}
		if len(cells) != 5 {
			t.Fatalf("%d cells: %s", len(cells), line)
		}
		row := caseRow{number: number, same: cells[2]}
		for part := range strings.SplitSeq(strings.TrimSpace(cells[4]), " — ") {
			tests, cases, _ := strings.Cut(part, ": ")
			for _, match := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(tests, -1) {
				row.tests = append(row.tests, match[1])
			}
			for name := range strings.SplitSeq(cases, "; ") {
				if name != "" {
					row.cases = append(row.cases, strings.Trim(tests, "`")+": "+name)
				}
			}
		}
		rows = append(rows, row)
	}
	return rows
}

// testNames returns the names of the tests in this package.
func testNames(t *testing.T) map[string]bool {
	names := map[string]bool{}
	files, err := filepath.Glob("*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range regexp.MustCompile(`(?m)^func (Test\w+)\(`).FindAllStringSubmatch(string(data), -1) {
			names[match[1]] = true
		}
	}
	return names
}
