package initramfs_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/initramfs"
	"machine-pivot/test/worlds/hostsystemd"
)

// childHandOver makes TestKeepNetwork act as the program that calls KeepNetwork.
const childHandOver = "TEST_HAND_OVER"

// TestKeepNetwork: without a unit that hands the network over, systemd is not contacted. With
// one, an error is left to the started system.
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

// TestKeepNetworkInOrder has the real systemd stop the unit that hands the network over: after what its file orders
// after it, and while what it is ordered after still runs. What requires the units continues.
func TestKeepNetworkInOrder(t *testing.T) {
	if testing.Short() {
		t.Skip("starts systemd")
	}
	if !hostsystemd.Inside(t) {
		return
	}
	const handOver = "coreos-teardown-initramfs.service"
	// Where the initramfs has its units.
	write(t, "/run/systemd/system/"+handOver, "")
	systemctl := func(args ...string) {
		t.Helper()
		if out, err := exec.Command("systemctl", args...).CombinedOutput(); err != nil {
			t.Fatalf("systemctl %q: %v\n%s", args, err, out)
		}
	}
	active := func(unit string) bool { return exec.Command("systemctl", "is-active", "--quiet", unit).Run() == nil }
	for name, c := range map[string]struct {
		order, want string
		manager     bool // runs afterwards
	}{
		"without NetworkManager": {"Before=nm-initrd.service ignition-mount.service ignition-complete.target", "ignition-mount nm-initrd teardown", false},
		"under another name":     {"Before=NetworkManager-initrd.service nm-initrd.service", "nm-initrd teardown", false},
		"with NetworkManager":    {"After=nm-initrd.service\nBefore=ignition-mount.service ignition-complete.target", "ignition-mount teardown", true},
		"of no order":            {"", "teardown", true},
	} {
		t.Run(name, func(t *testing.T) {
			dir, units := t.TempDir(), hostsystemd.Units(t)
			says := func(what string) string {
				return "ExecStop=/bin/sh -c 'sleep 0.2; echo " + what + " >>" + dir + "/stopped'\n"
			}
			const early, once = "[Unit]\nDefaultDependencies=no\n", "[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=/bin/true\n"
			write(t, filepath.Join(units, "nm-initrd.service"), early+"[Service]\nExecStart=/bin/sleep infinity\n"+says("nm-initrd"))
			write(t, filepath.Join(units, "ignition-mount.service"), early+"Before=ignition-files.service\n"+once+says("ignition-mount"))
			write(t, filepath.Join(units, "ignition-files.service"), early+once+says("ignition-files"))
			write(t, filepath.Join(units, "ignition-complete.target"), early+"Requires=ignition-mount.service nm-initrd.service\n")
			write(t, filepath.Join(units, handOver), early+c.order+"\n"+once+says("teardown"))
			systemctl("daemon-reload")
			systemctl("start", handOver, "nm-initrd.service", "ignition-mount.service", "ignition-files.service", "ignition-complete.target")
			if err := initramfs.New("/nowhere").KeepNetwork(t.Context()); err != nil {
				t.Fatal(err)
			}
			order, _ := os.ReadFile(dir + "/stopped")
			if got := strings.Join(sorted(strings.Fields(string(order))), " "); got != c.want {
				t.Errorf("stopped %q, want %q", got, c.want)
			}
			if active("nm-initrd.service") != c.manager || active(handOver) || !active("ignition-complete.target") || !active("ignition-files.service") {
				t.Errorf("NetworkManager runs: %v; teardown: %v; ignition-complete.target: %v", active("nm-initrd.service"), active(handOver), active("ignition-complete.target"))
			}
			systemctl("stop", "ignition-complete.target", "nm-initrd.service", "ignition-mount.service", "ignition-files.service")
		})
	}
}

// sorted returns what was stopped, with all that was stopped before the last in the order of its names.
func sorted(stopped []string) []string {
	if n := len(stopped); n > 1 {
		slices.Sort(stopped[:n-1])
	}
	return stopped
}
