package rules

import (
	"strconv"
	"strings"
	"testing"
)

// TestWords checks that no document and no file of code has more patterns that are hard to read than
// test/tools/words/ceilings allows: the first two columns of an earlier "make words". What the file lacks may have none.
// Write plainer sentences, and lower the numbers; never raise them.
func TestWords(t *testing.T) {
	allowed, found := counts(readText(t, "test/tools/words/ceilings")), counts(run(t, "go", "run", "./test/tools/words"))
	if len(found) < 50 {
		t.Fatalf("only %d texts", len(found))
	}
	for text, n := range found {
		if n > allowed[text] {
			t.Errorf("%s has %d patterns that are hard to read, %d are allowed: go run ./test/tools/words %s", text, n, allowed[text], text)
		}
	}
}

// counts returns the numbers in an output of the tool, by file.
func counts(output string) map[string]int {
	numbers := map[string]int{}
	for line := range strings.Lines(output) {
		if fields := strings.Fields(line); len(fields) > 1 {
			if n, err := strconv.Atoi(fields[1]); err == nil {
				numbers[fields[0]] = n
			}
		}
	}
	return numbers
}
