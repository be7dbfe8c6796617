package rules

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestRequirements checks that each requirement in docs/requirements.md names existing tests, that
// each table is in numerical order, and that the document has each number in a test's comment.
func TestRequirements(t *testing.T) {
	data, err := os.ReadFile(filepath.Join(root, "docs/requirements.md"))
	if err != nil {
		t.Fatal(err)
	}
	rows, problems := requirementRows(string(data))
	for _, p := range problems {
		t.Error(p)
	}
	tests, numbers := testFunctions(t)
	for number, named := range rows {
		if len(named) == 0 {
			t.Errorf("%s names no test", number)
		}
		for _, name := range named {
			if !tests[name] {
				t.Errorf("%s is shown by %s, which is not there", number, name)
			}
		}
	}
	for number, file := range numbers {
		if _, ok := rows[number]; !ok {
			t.Errorf("%s names %s, which docs/requirements.md does not explain", file, number)
		}
	}
}

// requirementRows returns the tests that each row of the document's tables names, by the row's number,
// and the problems of rows: a wrong number of cells, the wrong heading, out of order.
func requirementRows(text string) (rows map[string][]string, problems []string) {
	headings := map[string]string{"P": "# Requirements", "D": "## Defects found by attacks, comparisons and use"}
	first := regexp.MustCompile(`^\| *([PD])(\d+) *\|`)
	test := regexp.MustCompile("`([^`]+)`")
	rows = map[string][]string{}
	heading, last := "", 0
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		if strings.HasPrefix(line, "#") {
			heading, last = line, 0
		}
		m := first.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		number := m[1] + m[2]
		if want := headings[m[1]]; heading != want {
			problems = append(problems, number+" does not stand under "+want)
		}
		n, err := strconv.Atoi(m[2])
		if err != nil || n <= last {
			problems = append(problems, number+" is out of order, or there twice")
		}
		last = n
		cells := strings.Split(line, "|")
		if len(cells) != 5 {
			problems = append(problems, number+" is no row of number, requirement and tests")
			continue
		}
		rows[number] = nil
		for _, name := range test.FindAllStringSubmatch(cells[3], -1) {
			rows[number] = append(rows[number], name[1])
		}
	}
	return rows, problems
}

// TestRequirementRows checks that wrong rows are found.
func TestRequirementRows(t *testing.T) {
	rows, problems := requirementRows(`# Requirements
| | requirement | shown by |
|---|---|---|
| P1 | one | ` + "`a.TestA`, `b.TestB`" + ` |
| P3 | three | here nobody says how |
| P2 | two | ` + "`a.TestA`" + ` |
| D4 | of the other table | ` + "`a.TestA`" + ` |

## Defects found by attacks, comparisons and use
| D1 | each table counts anew | ` + "`a.TestC`" + ` |
| D2 | a | b | ` + "`a.TestA`" + ` |
`)
	wantRows := map[string][]string{
		"P1": {"a.TestA", "b.TestB"}, "P2": {"a.TestA"}, "P3": nil, "D1": {"a.TestC"}, "D4": {"a.TestA"},
	}
	if !reflect.DeepEqual(rows, wantRows) {
		t.Errorf("rows %v, want %v", rows, wantRows)
	}
	wantProblems := []string{
		"P2 is out of order, or there twice",
		"D4 does not stand under ## Defects found by attacks, comparisons and use",
		"D2 is no row of number, requirement and tests",
	}
	if !slices.Equal(problems, wantProblems) {
		t.Errorf("problems %q, want %q", problems, wantProblems)
	}
}

// testFunctions returns all tests, as PACKAGE.NAME, and the requirement numbers in the comments of
// test files, each with one such file.
func testFunctions(t *testing.T) (tests map[string]bool, numbers map[string]string) {
	t.Helper()
	tests, numbers = map[string]bool{}, map[string]string{}
	function := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	comment := regexp.MustCompile(`\(([PD]\d+(?:, [PD]\d+)*)\)`)
	for _, p := range packages(t) {
		files, err := filepath.Glob(filepath.Join(p.Dir, "*_test.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range function.FindAllStringSubmatch(string(text), -1) {
				tests[p.short()+"."+m[1]] = true
			}
			for _, m := range comment.FindAllStringSubmatch(string(text), -1) {
				for number := range strings.SplitSeq(m[1], ", ") {
					numbers[number] = filepath.Join(p.short(), filepath.Base(file))
				}
			}
		}
	}
	return tests, numbers
}
