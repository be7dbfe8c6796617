package initramfs_test

import (
	"context"
	"os"
	"strings"
	"testing"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/initramfs"
)

// childHandOver makes TestKeepNetwork act as the program that calls KeepNetwork.
const childHandOver = "TEST_HAND_OVER"

// TestKeepNetwork: without a unit that hands the network over, systemd is not contacted. With
// one, an error is left to the started system. Success requires a real systemd (test/suites/e2e).
func TestKeepNetwork(t *testing.T) {
	if os.Getenv(childHandOver) != "" {
		err := initramfs.New("/nowhere").KeepNetwork(context.Background())
		if err != nil && fault.KindOf(err) != fault.Later {
			t.Errorf("of kind %v", fault.KindOf(err))
		}
		if err != nil {
			os.Stdout.WriteString(err.Error() + "\n")
		}
		return
	}
	needRoot(t)
	for setup, want := range map[string]string{
		"": "",
		"mkdir -p /etc/systemd/system; touch /etc/systemd/system/coreos-teardown-initramfs.service; ": "cannot hand the network settings over to the system: cannot reach systemd",
	} {
		out, err := elsewhere(t, childHandOver, setup)
		if err != nil || !strings.Contains(out, want) || want == "" && strings.Contains(out, "cannot") {
			t.Errorf("%v, want %q:\n%s", err, want, out)
		}
	}
}
