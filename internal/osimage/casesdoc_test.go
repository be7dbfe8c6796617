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

// TestCasesAreDocumented compares docs/dev/derived-cases.md with the tables of cases. Each row names existing tests and
// cases, each case has a row, and the reference implementation's column agrees with the tests.
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

// testsOfRows has the tests of each row, separated by " — ": "TEST: CASE; CASE", or tests alone.
var testsOfRows = []string{
	"TestDerived: a file replaced, with another mode",
	"TestDerived: extended attributes",
	"TestDerived: whiteouts",
	"TestDerived: a directory removed and made again",
	"TestDerived: an opaque directory",
	"TestDerived: the same with a name that sorts before it",
	"TestDerived: a whiteout and a file of the same name; the same in one layer",
	"TestDerived: other types over layers; a symbolic link is not followed",
	"TestDerived: the mode of a directory that is there",
	"TestDerived: the mode of a directory that a layer made",
	"TestDerived: directories without entries; directories without entries, of several owners",
	"TestDerived: hard links",
	"TestDerived: a hard link to a file of a lower layer",
	"TestDerived: a chain of hard links",
	"TestDerivedRefused: a pipe; a device — TestDerived: of the running system",
	"TestSparse: sparse files, gnu; sparse files, posix",
	"TestDerived: a label and an empty attribute",
	"TestChangedObjects: with links to it; with links to it in other forms",
	"TestChangedObjects: with a link below etc; the object a link to what is below etc",
	"TestChangedObjects: of 1970 with links to it; of 1970 with later links to it",
	"TestChangedObjects: only a link to the base's; only a link of 1970 to the base's; with links before it",
	"TestDerived: empty files of container tools; the same with content",
	"TestDerived: beside usr and etc, seen; beside usr and etc, not seen; a hard link to what is not seen",
	"TestDerived: of the running system",
	"TestDerived: of var, and gone again",
	"TestDerivedPolicy: the policy for paths of the base changed",
	"TestDerivedPolicy: the text of compiled contexts changed; the text of compiled contexts changed and those removed",
	"TestDerivedPolicy: the policy removed; the policy switched off",
	"TestDerivedPolicy: the policy for an earlier layer's path changed — TestLayerCommitsHaveFinalLabels",
	"TestDerived: one path by two names",
	"TestDerivedRefused: upwards; not UTF-8; a whiteout of nothing; a whiteout of the directory itself; a whiteout of the directory above; file and directory; directory and file",
	"TestDerived: long names, and not of ASCII; names in a PAX header",
	"TestDerived: layers that change nothing",
	"TestPlain: a plain image, one; a plain image, chunked; a plain image, many — TestDerivedPolicy: a whole OS on a base of a kernel",
	"TestDerived, TestPlain, TestInterruptedDerived",
	"TestInterruptedDerived",
	"TestDerived: etc removed",
	"TestDerivedRefused: a signed base; signed",
	"TestDerived: kernel arguments",
	"TestDerived: a large file",
	"TestDerivedPolicy: no label by the policy",
	"TestDerivedRefused: a hard link to nothing; hard links in a circle; a long name",
	"TestDerivedRefused: two kernels; no kernel; no release",
	"TestDerivedRefused: a pattern that Go does not know; no policy",
	"TestDerived: a directory without an entry below one with",
}

// caseRows reads the rows.
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
		if len(cells) != 4 || number < 1 || number > len(testsOfRows) {
			t.Fatalf("%d cells: %s", len(cells), line)
		}
		row := caseRow{number: number, same: cells[2]}
		for part := range strings.SplitSeq(testsOfRows[number-1], " — ") {
			tests, cases, _ := strings.Cut(part, ": ")
			row.tests = append(row.tests, strings.Split(tests, ", ")...)
			for name := range strings.SplitSeq(cases, "; ") {
				if name != "" {
					row.cases = append(row.cases, tests+": "+name)
				}
			}
		}
		rows = append(rows, row)
	}
	if len(rows) != len(testsOfRows) {
		t.Fatalf("%d rows, tests of %d", len(rows), len(testsOfRows))
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
