package host_test

import (
	"testing"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/host"
)

// TestLock (P38): a second pivot fails and names the first.
func TestLock(t *testing.T) {
	h := host.New(t.TempDir())
	unlock, err := h.Lock()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.Lock(); fault.KindOf(err) != fault.Unavailable || fault.HintOf(err) == "" {
		t.Errorf("a second lock: %v", err)
	}
	if err := unlock(); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Lock(); err != nil {
		t.Errorf("after unlock: %v", err)
	}
}
