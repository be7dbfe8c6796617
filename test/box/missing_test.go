package box_test

import (
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"machine-pivot/test/box"
	"machine-pivot/test/tools/need"
)

// TestMissing checks that a user without rights is told what is missing, and what to do.
func TestMissing(t *testing.T) {
	need.Root(t)
	const nobody = 65534
	missing := make(chan []string)
	go func() {
		// Only this thread gets another user, and it ends with this goroutine.
		runtime.LockOSThread()
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, nobody, nobody, nobody); errno != 0 {
			t.Error(errno)
		}
		missing <- box.Missing()
	}()
	if got := <-missing; len(got) != 1 || !strings.Contains(got[0], "root: ") {
		t.Errorf("missing %q, want root, and what to do", got)
	}
}
