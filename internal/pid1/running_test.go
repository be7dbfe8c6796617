package pid1_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"machine-pivot/internal/pid1"
)

// TestStartOf tests which files make a system one that was entered.
func TestStartOf(t *testing.T) {
	dir := t.TempDir()
	mark := filepath.Join(dir, "entered")
	if err := os.WriteFile(mark, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, mark string
		soft       uint32
		want       pid1.StartID
	}{
		{"entered", mark, 0, "boot+entered"},
		{"soft reboots since then", mark, 2, "boot+2"},
		{"no mark", filepath.Join(dir, "missing"), 0, "boot"},
		{"a file in the place of its directory", filepath.Join(mark, "entered"), 0, "boot"},
		{"unknown", filepath.Join(dir, strings.Repeat("x", 300)), 0, ""},
	} {
		id, err := pid1.RunningStart("boot", c.soft, c.mark)
		if id != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%s: ID %q, %v; want %q", c.name, id, err, c.want)
		}
	}
}
