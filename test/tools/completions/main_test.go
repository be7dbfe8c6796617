package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"machine-pivot/test/tools/script"
)

// TestCompletions (P61) checks that the installed completions are those that the programs themselves
// print, and that each shell completes with them on a terminal.
func TestCompletions(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the programs")
	}
	bin, dir := script.Programs(t), t.TempDir()
	if err := write([]string{dir}); err != nil {
		t.Fatal(err)
	}
	t.Run("as the programs print them", func(t *testing.T) { compare(t, bin, dir) })
	t.Run("typed", func(t *testing.T) { typed(t, bin, dir) })
	if err := write(nil); err == nil {
		t.Error("it writes nowhere, and says nothing")
	}
}

func compare(t *testing.T, bin, dir string) {
	for _, program := range []string{"pivot", "pivotctl", "pivot-agent"} {
		for shell, name := range map[string]string{"bash": program, "zsh": "_" + program, "fish": program + ".fish"} {
			got, err := os.ReadFile(filepath.Join(dir, shell, name))
			if err != nil {
				t.Fatal(err)
			}
			want, err := exec.Command(filepath.Join(bin, program), "completion", shell).Output()
			if err != nil || string(got) != string(want) {
				t.Errorf("%s for %s is not what the program prints (%v)", program, shell, err)
			}
		}
	}
}
