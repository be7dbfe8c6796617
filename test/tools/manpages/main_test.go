package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"machine-pivot/test/tools/need"
)

// TestWrite: each page is there, with the version in its footer, and nothing that was there before.
func TestWrite(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "man")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "pivot-old.8"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := write([]string{"../../../man", dir, "1.2.3"}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"pivot.8", "pivot-status.8", "pivotctl.1", "pivotctl-config-validate.1", "pivot-agent.8", "pivot-agent-node.8", "firstboot.conf.5", "pivot-slot.service.8"} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil || strings.Count(string(text), "\n.Os pivot 1.2.3\n") != 1 || strings.Contains(string(text), "\n.Os\n") {
			t.Errorf("%s: %v\n%.200s", name, err, text)
		}
	}
	need.Program(t, "man")
	for _, name := range []string{"pivot.8", "pivot-status.8", "pivotctl.1"} {
		cmd := exec.CommandContext(t.Context(), "man", "-l", filepath.Join(dir, name))
		cmd.Env = append(os.Environ(), "MANWIDTH=80", "MANPAGER=cat", "LC_ALL=C.UTF-8")
		out, err := cmd.Output()
		lines := strings.Split(strings.TrimSpace(string(out)), "\n")
		if header, footer := lines[0], lines[len(lines)-1]; err != nil || strings.Contains(header, "BSD") || !strings.HasPrefix(footer, "pivot 1.2.3 ") {
			t.Errorf("%s: %v, header %q, footer %q", name, err, header, footer)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "pivot-old.8")); err == nil {
		t.Error("a page of a command that is gone is still there")
	}
	if err := write([]string{dir}); err == nil {
		t.Error("it writes nothing, and says nothing")
	}
	if err := write([]string{t.TempDir() + "/none", filepath.Join(dir, "x"), "1"}); err == nil {
		t.Error("there are no pages, and it says nothing")
	}
}
