// Command summary reads the output of go test -json from its standard input and
// summarizes it as it arrives: a line for each package, the whole output of each
// failed test, and the reason for each skipped test. At the end it prints the times
// of the slow tests, in the form of the tables in docs/testing.md, or if any tests
// failed, their messages; and then one line with the counts.
// It fails if anything failed, if nothing ran and, with CI=true, if anything
// was skipped.
package main

import (
	"fmt"
	"os"
)

func main() {
	ci := os.Getenv("CI") == "true"
	t, err := summarize(os.Stdin, os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, "summary: cannot read the test stream:", err)
		os.Exit(1)
	}
	if ci && t.skipped > 0 {
		fmt.Println("a skipped test is a failure where CI=true")
	}
	if t.failed == 0 {
		fmt.Print(t.times.table())
	}
	fmt.Print(t.failures.report())
	fmt.Printf("%d passed, %d failed, %d skipped\n", t.passed, t.failed, t.skipped)
	if t.failed > 0 || t.passed == 0 || ci && t.skipped > 0 {
		os.Exit(1)
	}
}
