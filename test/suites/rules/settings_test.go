package rules

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"machine-pivot/internal/settings"
)

// TestSettings: each setting exists, and is explained in the document and on the man page of the settings.
func TestSettings(t *testing.T) {
	dir := t.TempDir()
	write := func(path, text string) {
		path = filepath.Join(dir, path)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	document, page := readText(t, "docs/settings.md"), readText(t, "man/firstboot.conf.5")
	for _, key := range append(settings.Keys(), "none-of-them") {
		write(settings.Path, key+"=?\n")
		_, err := settings.Read(dir, nil)
		exists := err == nil || !strings.Contains(err.Error(), "there is no setting")
		if explained := strings.Contains(document, "| `"+key+"="); explained != exists {
			t.Errorf("%s: is a setting: %v; in docs/settings.md: %v", key, exists, explained)
		}
		if explained := strings.Contains(page, " Cm "+key+" Ns = "); explained != exists {
			t.Errorf("%s: is a setting: %v; in man/firstboot.conf.5: %v", key, exists, explained)
		}
	}
}
