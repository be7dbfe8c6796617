// Package need declares the prerequisites of tests. A test without one is skipped with the reason;
// with CI=true it fails.
package need

import (
	"os"
	"os/exec"
	"testing"

	"machine-pivot/test/suites/ignition"
)

// Ostree requires ostree's command line, and root.
func Ostree(t testing.TB) {
	t.Helper()
	if _, err := exec.LookPath("ostree"); err != nil {
		Lacking(t, "needs ostree's command line: "+err.Error())
	}
	Root(t)
}

// Ignition requires Debian's Ignition, and root, which it must run as.
func Ignition(t testing.TB) {
	t.Helper()
	if _, err := os.Stat(ignition.Program); err != nil {
		Lacking(t, "needs Ignition: "+err.Error())
	}
	Root(t)
}

// Root requires root, for file owners and mounts.
func Root(t testing.TB) {
	t.Helper()
	if os.Getuid() != 0 {
		Lacking(t, "needs root: sets the owners of files and makes mounts")
	}
}

// Program requires a program in PATH.
func Program(t testing.TB, name string) {
	t.Helper()
	if _, err := exec.LookPath(name); err != nil {
		Lacking(t, "needs "+name+": "+err.Error())
	}
}

// File requires a file of some package.
func File(t testing.TB, name string) {
	t.Helper()
	if _, err := os.Stat(name); err != nil {
		Lacking(t, "needs "+name+": "+err.Error())
	}
}

// Lacking skips the test with a reason, or fails it with CI=true.
func Lacking(t testing.TB, reason string) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatal(reason)
	}
	t.Skip(reason)
}
