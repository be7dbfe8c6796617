package main

import (
	"io"
	"strings"
	"testing"
)

// TestFailuresAgain checks that the report has the messages of failed tests, but not the lines of a
// machine's console between them.
func TestFailuresAgain(t *testing.T) {
	s, err := summarize(strings.NewReader(`{"Action":"output","Package":"p","Test":"A/x","Output":"=== RUN   A/x\n"}
{"Action":"output","Package":"p","Test":"A/x","Output":"    a_test.go:7: | 1.0 pivot: read\n"}
{"Action":"output","Package":"p","Test":"A/x","Output":"    a_test.go:1: got\n"}
{"Action":"output","Package":"p","Test":"A/x","Output":"        one thing\n"}
{"Action":"output","Package":"p","Test":"A/x","Output":"    a_test.go:7: | 2.0 pivot: done\n"}
{"Action":"output","Package":"p","Test":"A/x","Output":"        of the console\n"}
{"Action":"output","Package":"p","Test":"A/x","Output":"--- FAIL: A/x (0.00s)\n"}
{"Action":"fail","Package":"p","Test":"A/x"}
{"Action":"fail","Package":"p","Test":"A"}
{"Action":"fail","Package":"p"}
{"Action":"output","Package":"q","Output":"panic: no\n"}
{"Action":"fail","Package":"q"}
`), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	want := `failed: p A/x
    a_test.go:1: got
    one thing
failed: q outside of its tests
    panic: no
`
	if got := s.failures.report(); got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}
