package host_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"machine-pivot/internal/settings"
)

// TestUnhealthy: units of the setting lack what systemd says that they are not.
func TestUnhealthy(t *testing.T) {
	h := machine(t, map[string]string{"/proc/cmdline": "quiet\n", settings.Path: "health=a.service,b.socket,c.mount\n"})
	h.Run = func(_ context.Context, argv ...string) ([]byte, error) {
		switch argv[len(argv)-1] {
		case "a.service":
			return []byte("ActiveState=active\n"), nil
		case "b.socket":
			return []byte("ActiveState=failed\n"), nil
		}
		return nil, errors.New("systemd is not there")
	}
	want := []string{"unit b.socket is failed", "unit c.mount is of an unknown state"}
	if got := h.Unhealthy(t.Context()); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
