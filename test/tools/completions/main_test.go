package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestCompletions (P61): what is installed is what the programs themselves would print,
// and what a shell can read.
func TestCompletions(t *testing.T) {
	if testing.Short() {
		t.Skip("builds both programs")
	}
	dir := t.TempDir()
	if err := write([]string{dir}); err != nil {
		t.Fatal(err)
	}
	for _, program := range []string{"pivot", "pivotctl"} {
		for shell, name := range map[string]string{"bash": program, "zsh": "_" + program, "fish": program + ".fish"} {
			got, err := os.ReadFile(filepath.Join(dir, shell, name))
			if err != nil {
				t.Fatal(err)
			}
			want, err := exec.Command("go", "run", "machine-pivot/cmd/"+program, "completion", shell).Output()
			if err != nil || string(got) != string(want) {
				t.Errorf("%s for %s is not what the program prints (%v)", program, shell, err)
			}
		}
	}
	if out, err := exec.Command("bash", "-n", filepath.Join(dir, "bash/pivot")).CombinedOutput(); err != nil {
		t.Errorf("bash does not read it: %v\n%s", err, out)
	}
	if err := write(nil); err == nil {
		t.Error("it writes nowhere, and says nothing")
	}
}
