package ignition_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"machine-pivot/internal/host"
	"machine-pivot/internal/settings"
	realignition "machine-pivot/test/suites/ignition"
	"machine-pivot/test/tools/need"
)

// TestRecipe: the Ignition config in docs/recipes gives a machine the intended settings.
func TestRecipe(t *testing.T) {
	need.Ignition(t)
	text, err := os.ReadFile("../../../docs/recipes/ignition.md")
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(text), "```json firstboot.ign\n")
	config, _, found := strings.Cut(after, "\n```")
	if !found {
		t.Fatal("the recipe has no Ignition config")
	}
	root := t.TempDir()
	if err := realignition.Apply(t.Context(), []byte(config), root); err != nil {
		t.Fatal(err)
	}
	cmdline := filepath.Join(root, "proc/cmdline")
	if err := os.MkdirAll(filepath.Dir(cmdline), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(cmdline, []byte("quiet\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	chosen, err := host.New(root).Settings()
	if err != nil || chosen.Mode != settings.ModeSystem || chosen.RebootMethod != settings.RebootKexec {
		t.Errorf("the machine's settings are %+v: %v", chosen, err)
	}
}
