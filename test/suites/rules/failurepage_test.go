package rules

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestFailurePage (D104): the page for a first boot that failed fits on one screen, and where a
// failure is read or looked up, it is named.
func TestFailurePage(t *testing.T) {
	read := func(name string) string {
		t.Helper()
		data, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	page := read("docs/failed.md")
	if lines := strings.Count(page, "\n"); lines > 45 {
		t.Errorf("the page has %d lines: that is no screen", lines)
	}
	for _, needed := range []string{"systemctl restart pivot-firstboot", "systemctl reset-failed pivot-firstboot", "pivot firstboot --again", "pivot-initramfs", "/sysroot", "4. **"} {
		if !strings.Contains(page, needed) {
			t.Errorf("the page does not have %q", needed)
		}
	}
	for name, link := range map[string]string{"README.md": "(docs/failed.md)", "docs/README.md": "(failed.md)", "docs/status.md": "(failed.md)"} {
		if !strings.Contains(read(name), link) {
			t.Errorf("%s does not link to the page", name)
		}
	}
	for _, entry := range strings.Split(read("systemd-units/pivot.catalog"), "\n-- ") {
		subject := strings.Contains(entry, "\nSubject: pivot failed\n") || strings.Contains(entry, "\nSubject: The machine stays on its old system\n")
		if subject != strings.Contains(entry, "docs/failed.md") {
			t.Errorf("the page is named where it does not help, or is missing: %s", entry)
		}
	}
}
