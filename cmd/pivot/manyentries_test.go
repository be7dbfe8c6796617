package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"machine-pivot/test/tools/script"
	"machine-pivot/test/worlds/hostdir"
)

// TestManyEntries (P55): planning a MachineConfig with 2,000 files and 200 units takes at most
// 64 MB of memory.
func TestManyEntries(t *testing.T) {
	if testing.Short() {
		t.Skip("reads 2,000 files")
	}
	var b strings.Builder
	b.WriteString("metadata: {name: many}\nspec:\n  config:\n    ignition: {version: 3.4.0}\n    storage:\n      files:\n")
	for i := range 2000 {
		fmt.Fprintf(&b, "      - {path: /etc/many/%d/%d, mode: 384, contents: {source: \"data:,%s%d\"}}\n", i%40, i, strings.Repeat("x", 1000), i)
	}
	b.WriteString("    systemd:\n      units:\n")
	for i := range 200 {
		fmt.Fprintf(&b, "      - {name: many-%d.service, enabled: true, contents: \"[Service]\\nExecStart=/bin/true\\n[Install]\\nWantedBy=multi-user.target\\n\"}\n", i)
	}
	config := filepath.Join(t.TempDir(), "many.yaml")
	if err := os.WriteFile(config, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	h := hostdir.New(t)
	got := script.CostOf(t, "pivot", "apply", "--dry-run", "--root", h.Root, config)
	if got.Exit != 0 || got.Peak > 64e6 {
		t.Errorf("want exit 0, and at most 64 MB\n%s", got.Stderr)
	}
}
