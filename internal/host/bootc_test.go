package host

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestBootc (P93): whether bootc manages a machine, and what pivot keeps for it after a change of the next boot.
func TestBootc(t *testing.T) {
	root := t.TempDir()
	h := New(root)
	write := func(name, text string) {
		t.Helper()
		file := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("run/x", "")
	write("sysroot/ostree/repo/config", "")
	if h.OfBootc() {
		t.Error("bootc manages a machine without it")
	}
	write("usr/bin/bootc", "")
	if h.OfBootc() {
		t.Error("bootc manages a machine that it has never changed")
	}
	dir := filepath.Join(h.Sysroot().Physical(), "ostree/bootc")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if !h.OfBootc() {
		t.Fatal("bootc does not manage a machine that it has installed")
	}
	old := time.Now().Add(-time.Hour)
	tell := func(pending bool, want string) {
		t.Helper()
		if err := os.Chtimes(dir, old, old); err != nil {
			t.Fatal(err)
		}
		if err := h.TellBootc(pending, "sha256:aa"); err != nil {
			t.Fatal(err)
		}
		st, err := os.Stat(dir)
		if err != nil || time.Since(st.ModTime()) > time.Minute {
			t.Errorf("the time of %s is %v, %v", dir, st.ModTime(), err)
		}
		text, _ := os.ReadFile(filepath.Join(root, rebootRequired))
		if !strings.HasPrefix(string(text), want) || want == "" && len(text) > 0 {
			t.Errorf("pending %v: %s has %q, want %q", pending, rebootRequired, text, want)
		}
	}
	tell(false, "")
	tell(true, "pivot: Reboot required for image: sha256:aa")
	tell(true, "pivot: Reboot required for image: sha256:aa")
	tell(false, "")
	write(rebootRequired, "bootc: Reboot required for image: sha256:bb")
	tell(false, "")
	const apt = "*** System restart required ***\n"
	write(rebootRequired, apt)
	tell(false, apt) // apt's need for a reboot is not over
}
