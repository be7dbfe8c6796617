package main

import (
	"testing"

	"machine-pivot/test/hostdir"
	"machine-pivot/test/script"
)

// TestWrongUses (D50): what each wrong use of the program says, on a machine that has
// booted its first system ($ROOT), and below a directory that is none ($EMPTY).
func TestWrongUses(t *testing.T) {
	vars := map[string]string{"ROOT": hostdir.New(t).Root, "EMPTY": t.TempDir()}
	script.WrongUses(t, "testdata/wrong.golden", t.TempDir(), vars, 60)
}
