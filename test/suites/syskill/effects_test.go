package syskill_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"machine-pivot/test/suites/booted"
	"machine-pivot/test/suites/syskill"
)

// asEffects is the argument that makes the test binary run doEffects.
const asEffects = "do-each-effect"

// doEffects changes a file in each way that a first boot does. In between it reads and prints,
// which are no effects, and it gets signals.
func doEffects() error {
	defer signalThread()()
	const file, other = "/var/file", "/var/other"
	if _, err := os.ReadFile("/proc/cmdline"); err != nil {
		return err
	}
	fmt.Println("what is said changes nothing")
	fd, err := unix.Open(file, unix.O_CREAT|unix.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	nameless, err := unix.Open("/var", unix.O_TMPFILE|unix.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	_, err = w.WriteString("to a pipe")
	err = errors.Join(err, r.Close(), w.Close())
	_, werr := unix.Write(fd, []byte("content"))
	_, perr := unix.Pwrite(nameless, []byte("content"), 0)
	// Some file systems lack extended attributes or flags: only the attempt counts.
	_ = unix.Fsetxattr(fd, "user.test", []byte("x"), 0)
	_ = unix.IoctlSetPointerInt(fd, unix.FS_IOC_SETFLAGS, 0)
	return errors.Join(err, werr, perr, unix.Fchmod(fd, 0o644), unix.Fchown(fd, 0, 0), unix.Ftruncate(fd, 2), unix.Fsync(fd),
		unix.Rename(file, other), unix.Unlink(other))
}

// signalThread sends signals to the calling thread until stop is called, as the Go runtime does when
// it preempts a goroutine.
func signalThread() (stop func()) {
	runtime.LockOSThread()
	thread, ticker, done := unix.Gettid(), time.NewTicker(time.Microsecond), make(chan struct{})
	go func() {
		for {
			select {
			case <-ticker.C:
				_ = unix.Tgkill(os.Getpid(), thread, unix.SIGURG)
			case <-done:
				return
			}
		}
	}()
	return func() { close(done) }
}

// TestEffects checks that the filter stops once at each call that changes something, and at no
// other.
func TestEffects(t *testing.T) {
	if testing.Short() {
		t.Skip("mounts")
	}
	program, err := os.Executable()
	must(t, err)
	want := strings.Fields("exec create create write write setxattr setflags chmod chown write fsync rename unlink")
	for range 20 { // the signals come at other calls each time
		r, err := syskill.Run(bare(t, program), syskill.Stop{}, asEffects)
		must(t, err)
		if r.Status != 0 {
			t.Fatalf("exit status %d\n%s", r.Status, r.Output)
		}
		if !slices.Equal(r.Effects, want) {
			t.Errorf("effects %q, want %q", r.Effects, want)
		}
	}
}

// bare returns a world that contains only the program, under the name pivot.
func bare(t *testing.T, program string) booted.World {
	t.Helper()
	dir := t.TempDir()
	b := booted.World{
		Physical: filepath.Join(dir, "physical"), Root: filepath.Join(dir, "root"), Var: filepath.Join(dir, "var"), RunDir: filepath.Join(dir, "run"),
		BootID: filepath.Join(dir, "boot_id"), Cmdline: filepath.Join(dir, "cmdline"), Programs: filepath.Join(dir, "programs"),
	}
	for _, d := range []string{filepath.Join(b.Physical, "boot"), b.Var, b.Programs, filepath.Join(b.RunDir, filepath.Base(booted.ProgramsDir))} {
		must(t, os.MkdirAll(d, 0o755))
	}
	for _, d := range []string{"boot", "dev", "proc", "run", "sys", "sysroot", "usr", "var"} {
		must(t, os.MkdirAll(filepath.Join(b.Root, d), 0o755))
	}
	for _, file := range []string{b.BootID, b.Cmdline} {
		must(t, os.WriteFile(file, nil, 0o644))
	}
	data, err := os.ReadFile(program)
	must(t, err)
	must(t, os.WriteFile(filepath.Join(b.Programs, "pivot"), data, 0o755))
	return b
}
