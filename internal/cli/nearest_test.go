package cli_test

import (
	"strings"
	"testing"

	"machine-pivot/internal/cli"
	"machine-pivot/internal/fault"
)

// TestMisspelt: a misspelling has the name that it was meant to be, and no other word has one.
func TestMisspelt(t *testing.T) {
	names := []string{"status", "rebase", "release-slot", "plan", "plot", "verify", "--append-karg", "--try", "--dry-run"}
	for word, want := range map[string]string{
		"stauts": "status", "sttus": "status", "statuss": "status", "STATUS": "status", "rebsae": "rebase", "pla": "plan", "plno": "plan",
		"rel": "release-slot", "re": "", "p": "", "status": "", "vrfy": "verify", "very": "verify", "frobnicate": "", "": "", "x": "", "größe": "",
		"--append-kargs": "--append-karg", "--dry": "--dry-run", "--trry": "--try", "--": "",
	} {
		if got := cli.Misspelt(word, names); got != want {
			t.Errorf("%q: %q, want %q", word, got, want)
		}
	}
	if got := cli.Misspelt(strings.Repeat("x", 1<<16), names); got != "" {
		t.Errorf("a long word: %q", got)
	}
	err := cli.Unknown("role", "wroker", "roles", []string{"master", "worker"})
	if fault.KindOf(err) != fault.Usage || fault.HintOf(err) != "did you mean worker?" {
		t.Errorf("%v, hint %q", err, fault.HintOf(err))
	}
}
