package booted_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"machine-pivot/test/suites/booted"
	"machine-pivot/test/tools/script"
	"machine-pivot/test/worlds/hostdir"
)

func TestMain(m *testing.M) {
	if os.Getenv(booted.Env) == "" {
		os.Exit(m.Run())
	}
	fmt.Fprintln(os.Stderr, "cannot enter the machine:", booted.Shell())
	os.Exit(125)
}

// TestBoots checks that the real programs can deploy a new system on a machine and reboot into it.
func TestBoots(t *testing.T) {
	h := hostdir.New(t)
	m := booted.New(t.TempDir(), h.Physical(), script.Programs(t))
	defer func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	}()
	expect := func(command, want string, status int) {
		t.Helper()
		out, got, err := m.Run(command)
		if err != nil || got != status || !strings.Contains(out, want) {
			t.Fatalf("%s: %v, status %d, want %d with %q:\n%s", command, err, got, status, want, out)
		}
	}
	expect("cat /proc/sys/kernel/random/boot_id; exit 5", "00000001-", 5)
	expect("touch /usr/written 2>&1 || :", "Read-only file system", 0) // it is the testing machine's
	expect("pivot status", "phase    idle", 0)
	expect("pivot rebase -r "+h.Image+"; echo not reached", "rebooting into", 0)
	expect("cat /proc/sys/kernel/random/boot_id", "00000002-", 0)
	expect("pivot verify && pivot status", "phase    done", 0)
}
