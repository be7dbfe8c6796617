package main

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// module has a package with mutants of each fate: its own test, or that of the suite, notices some.
var module = map[string]string{
	"go.mod": "module sum\n\ngo 1.26\n",
	"sum.go": `package sum

func Of(all []int, err error) int {
	if err != nil {
		return -1
	}
	n := 0
	for _, i := range all {
		n += i
	}
	return n
}

func Small(n int, even bool) bool {
	return n < 10 && even
}

func Never(n *int) {
	switch {
	default:
		*n = 1
	}
}
`,
	"sum_test.go": `package sum

import "testing"

func TestOf(t *testing.T) {
	if Of([]int{1, 2}, nil) != 3 {
		t.Error("not 3")
	}
}
`,
	"suite/suite_test.go": `package suite

import (
	"sum"
	"testing"
)

func TestSmall(t *testing.T) {
	if !sum.Small(8, true) || sum.Small(8, false) {
		t.Error("8 is small if it is even")
	}
}
`,
}

// TestMutants tries all mutants of a package, and those of one line.
func TestMutants(t *testing.T) {
	t.Chdir(t.TempDir())
	for name, text := range module {
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	for at, want := range map[string][]string{
		"": {
			"killed        sum.go:14 early return, by sum/suite",
			"killed        sum.go:15 && is ||, by sum/suite",
			"killed        sum.go:3 early return, by sum",
			"killed        sum.go:4 condition negated, by sum",
			"killed        sum.go:9 statement deleted, by sum",
			"never reached sum.go:18 early return",
			"never reached sum.go:21 statement deleted",
			"seed 1",
			"sum: 5 killed, 2 survived, 2 never reached",
			"survived      sum.go:15 < is <=",
			"survived      sum.go:4 error dropped",
		},
		"sum.go:21": {"never reached sum.go:21 statement deleted", "seed 1", "sum: 0 killed, 0 survived, 1 never reached"},
	} {
		var out strings.Builder
		if err := run(&out, 100, 1, strings.Fields(at), []string{"./suite"}, strings.Fields(".")); err != nil {
			t.Fatal(err)
		}
		got := strings.Split(strings.TrimSpace(out.String()), "\n")
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("lines %q: got\n%s", at, strings.Join(got, "\n"))
		}
	}
}
