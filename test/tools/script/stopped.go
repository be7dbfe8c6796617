package script

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// StopsReading runs a program that waits for its input, once for each signal that ends a run, and
// requires that it ends with the exit status of the signal. An argument PIPE stands for a pipe that the
// test holds open; without one, the program reads its standard input.
func StopsReading(t *testing.T, argv ...string) {
	t.Helper()
	// A signal that this process ignores, as in the background of a script, would be ignored by the program, too.
	for s, exit := range map[syscall.Signal]int{syscall.SIGINT: 130, syscall.SIGTERM: 69, syscall.SIGHUP: 69} {
		t.Run(strings.Join(argv, " ")+" "+s.String(), func(t *testing.T) { stopsReading(t, argv, s, exit) })
	}
}

func stopsReading(t *testing.T, argv []string, s syscall.Signal, exit int) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	var args []string
	for _, arg := range argv[1:] {
		args = append(args, strings.ReplaceAll(arg, "PIPE", pipe))
	}
	read, write, err := os.Pipe()
	if err == nil {
		_, err = write.WriteString("#\n") // a comment of YAML: the program reads it, and waits for more
	}
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	defer write.Close()
	cmd := exec.Command(argv[0], args...)
	var out bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = read, &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(ended)
	}()
	reads := func() bool { return isEmpty(t, read) }
	if strings.Contains(strings.Join(argv, " "), "PIPE") {
		reads = func() bool {
			file, err := os.OpenFile(pipe, os.O_WRONLY|unix.O_NONBLOCK, 0)
			if err == nil {
				t.Cleanup(func() { _ = file.Close() })
			} else if !errors.Is(err, unix.ENXIO) { // nobody has opened it to read
				t.Fatal(err)
			}
			return err == nil
		}
	}
	for running := true; running && !reads(); {
		select {
		case <-ended:
			running = false
		case <-time.After(10 * time.Millisecond):
		}
	}
	_ = cmd.Process.Signal(s) // it may have ended, which is wrong
	select {
	case <-ended:
	case <-time.After(time.Minute):
		_ = cmd.Process.Kill()
		<-ended
		t.Errorf("still waits for its input a minute after the signal")
	}
	if got := cmd.ProcessState.ExitCode(); got != exit || !strings.Contains(out.String(), "stopped: "+s.String()) {
		t.Errorf("exit status %d, want %d: %s", got, exit, out.String())
	}
}

// isEmpty reports whether all that was written to a pipe is read.
func isEmpty(t *testing.T, pipe *os.File) bool {
	t.Helper()
	left, err := unix.IoctlGetInt(int(pipe.Fd()), unix.TIOCINQ)
	if err != nil {
		t.Fatal(err)
	}
	return left == 0
}
