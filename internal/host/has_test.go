package host_test

import (
	"os"
	"testing"

	"machine-pivot/internal/host"
)

// TestHas tells what is there from what is not, and from what cannot be known: there is
// nothing below a file, but a machine on which a directory became one has to be looked at.
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
