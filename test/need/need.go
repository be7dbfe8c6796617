// Package need says what a test cannot do without. Where it lacks the test is
// skipped with the reason; under CI=true that is a failure.
package need

import (
	"os"
	"os/exec"
	"testing"

	"machine-pivot/test/ignition"
)

// Ostree needs the real ostree and the right to use it.
func Ostree(t testing.TB) {
	t.Helper()
	if _, err := exec.LookPath("ostree"); err != nil {
		Lacking(t, "needs ostree's command line: "+err.Error())
	}
	Root(t)
}

// Ignition needs Debian's Ignition, and root, for whom it is made.
func Ignition(t testing.TB) {
	t.Helper()
	if _, err := os.Stat(ignition.Program); err != nil {
		Lacking(t, "needs Ignition: "+err.Error())
	}
	Root(t)
}

// Root needs root: owners of files are set, and mounts made.
func Root(t testing.TB) {
	t.Helper()
	if os.Getuid() != 0 {
		Lacking(t, "needs root: sets the owners of files and makes mounts")
	}
}

// Program needs a program.
func Program(t testing.TB, name string) {
	t.Helper()
	if _, err := exec.LookPath(name); err != nil {
		Lacking(t, "needs "+name+": "+err.Error())
	}
}

// File needs a file of a package.
func File(t testing.TB, name string) {
	t.Helper()
	if _, err := os.Stat(name); err != nil {
		Lacking(t, "needs "+name+": "+err.Error())
	}
}

// Lacking skips the test for a reason, or fails it under CI=true.
func Lacking(t testing.TB, reason string) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatal(reason)
	}
	t.Skip(reason)
}
