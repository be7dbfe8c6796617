package host_test

import (
	"os"
	"testing"

	"machine-pivot/internal/host"
)

// TestHas distinguishes what exists, what does not, and what cannot be determined. A path below a
// file is an error and not absent, because the file may have replaced a directory.
func TestHas(t *testing.T) {
	h := host.Host{Root: t.TempDir()}
	for _, err := range []error{os.WriteFile(h.Path("/file"), nil, 0o600), os.Symlink("nowhere", h.Path("/link"))} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for path, want := range map[string]bool{"/file": true, "/link": true, "/nothing": false, "/no/thing": false} {
		if there, err := h.Has(path); there != want || err != nil {
			t.Errorf("%s: %v, %v", path, there, err)
		}
	}
	if there, err := h.Has("/file/below"); there || err == nil {
		t.Errorf("below a file: %v, %v", there, err)
	}
}
