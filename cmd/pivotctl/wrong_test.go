package main

import (
	"os"
	"path/filepath"
	"testing"

	"machine-pivot/test/tools/script"
)

// TestWrongUses: the messages for each wrong use of the program.
func TestWrongUses(t *testing.T) {
	dir := t.TempDir()
	put(t, filepath.Join(dir, "text"), "no: MachineConfig\n")
	if err := os.Mkdir(filepath.Join(dir, "empty"), 0o755); err != nil {
		t.Fatal(err)
	}
	script.WrongUses(t, "testdata/wrong.golden", dir, nil, 40)
}

func put(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
