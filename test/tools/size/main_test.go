package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestReport: the lines of each room are counted, without tests, and one that is too large, or a folder in no room, fails.
func TestReport(t *testing.T) {
	root := t.TempDir()
	for name, text := range map[string]string{
		"go.mod": "module x\n\ngo 1.26\n", "a/a.go": "package a\n\nimport _ \"x/a/b\"\n", "a/b/b.go": "package b\n", "a/b/b_test.go": "package b\n\n\n\n\n",
		"a/testdata/c.go": "package c\n\n\n\n\n", "test/d/d.go": "package d\n\n\n\n\n", "c/c.go": "package c\n",
	} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(root, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct{ rows, want, wrong string }{
		{"| all | `a`, `c` | 1,005 | why |\n", "5 of   1005 lines", ""},
		{"| room | folders | lines | why |\n|---|---|---|---|\n| a | `a` | 3 | |\n| b | `a/b` | 1 | |\n| c | `c` | 1 | |\n", "all                                           5 lines, 3 packages, 2 levels", ""},
		{"| a | `a` | 3 | |\n| c | `c` | 1 | |\n", "4 of      3 lines", "a has 4 lines, and 3 are allowed"},
		{"| a | `a` | 4 | |\n", "", "c is in no room"},
		{"| a | `a` | many | |\n", "", "cannot read the limit of a"},
		{"no table\n", "", "has no rooms"},
	} {
		if err := os.MkdirAll(filepath.Join(root, "docs/dev"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, table), []byte(c.rows), 0o644); err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		err := report(root, &out)
		if !strings.Contains(out.String(), c.want) || (err == nil) != (c.wrong == "") || err != nil && !strings.Contains(err.Error(), c.wrong) {
			t.Errorf("%q: %v\n%s", c.rows, err, out.String())
		}
	}
}

// TestLevels: as many levels of imports as are allowed pass, and one more fails.
func TestLevels(t *testing.T) {
	root := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(filepath.Join(root, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("go.mod", "module x\n\ngo 1.26\n")
	write(table, "| all | `p` | 1,000 | |\n")
	write("p/1/p.go", "package p\n")
	for n := 2; n <= mostLevels+1; n++ {
		if n == mostLevels+1 {
			if err := report(root, io.Discard); err != nil {
				t.Errorf("%d levels: %v", n-1, err)
			}
		}
		write(fmt.Sprintf("p/%d/p.go", n), fmt.Sprintf("package p\n\nimport _ \"x/p/%d\"\n", n-1))
	}
	if err := report(root, io.Discard); err == nil || !strings.Contains(err.Error(), "imports have 11 levels, and 10 are allowed") {
		t.Errorf("one more: %v", err)
	}
}
