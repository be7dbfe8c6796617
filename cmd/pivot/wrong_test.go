package main

import (
	"testing"

	"machine-pivot/test/tools/script"
	"machine-pivot/test/worlds/hostdir"
)

// TestWrongUses: the messages for each wrong use of the program, on a machine that has
// booted its first system ($ROOT), and below a directory that is not a machine ($EMPTY).
func TestWrongUses(t *testing.T) {
	vars := map[string]string{"ROOT": hostdir.New(t).Root, "EMPTY": t.TempDir()}
	script.WrongUses(t, "testdata/wrong.golden", t.TempDir(), vars, 60)
}
