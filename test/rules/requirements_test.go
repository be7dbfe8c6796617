package rules

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestRequirements checks that each requirement in docs/requirements.md names
// tests that are there, and that each number in a test's comment is explained.
func TestRequirements(t *testing.T) {
	data, err := os.ReadFile(filepath.Join(root, "docs/requirements.md"))
	if err != nil {
		t.Fatal(err)
	}
	tests, numbers := testFunctions(t)
	documented := map[string]bool{}
	for line := range strings.Lines(string(data)) {
		cells := strings.Split(line, "|")
		if len(cells) != 5 || !strings.HasPrefix(cells[1], " P") {
			continue
		}
		number := strings.TrimSpace(cells[1])
		documented[number] = true
		named := regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(cells[3], -1)
		if len(named) == 0 {
			t.Errorf("%s names no test", number)
		}
		for _, name := range named {
			if !tests[name[1]] {
				t.Errorf("%s is shown by %s, which is not there", number, name[1])
			}
		}
	}
	for number, file := range numbers {
		if !documented[number] {
			t.Errorf("%s names %s, which docs/requirements.md does not explain", file, number)
		}
	}
}

// testFunctions are all tests, as package directory and name, and the numbers of
// requirements that their comments have, each with a file.
func testFunctions(t *testing.T) (tests map[string]bool, numbers map[string]string) {
	t.Helper()
	tests, numbers = map[string]bool{}, map[string]string{}
	function := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	comment := regexp.MustCompile(`\((P\d+(?:, P\d+)*)\)`)
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
