package kargs_test

import (
	"slices"
	"strings"
	"testing"

	"machine-pivot/kargs"
)

// TestParseTuning (P23): arguments can be deleted too.
func TestParseTuning(t *testing.T) {
	add, remove, err := kargs.ParseTuning("# tuned\n\nADD nosmt\n  ADD acpi_osi=\"!Windows 2020\" \nDELETE quiet\nDELETE mitigations=off")
	if err != nil || !slices.Equal(add, []string{"nosmt", `acpi_osi="!Windows 2020"`}) || !slices.Equal(remove, []string{"quiet", "mitigations=off"}) {
		t.Errorf("add %q, remove %q, %v", add, remove, err)
	}
	_, _, err = kargs.ParseTuning("ADD a\nadd b\nDELETE\nREPLACE c d\n")
	for _, want := range []string{`line 2: "add b"`, `line 3: "DELETE"`, `line 4: "REPLACE c d"`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %s", err, want)
		}
	}
}
