// Command summary reads the output of go test -json from standard input and prints a summary while
// it arrives: a line for each package, the whole output of failed tests, and the reason for skipped
// ones. At the end it prints the messages of failed tests or, if there are none, the duration of
// slow tests as the table in docs/testing.md, and one line with the counts. It fails if a test
// failed, if none ran and, with CI=true, if any was skipped.
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
